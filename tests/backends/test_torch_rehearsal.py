"""A trial after a switch: what is new is computed, what was said before by shared parts is not, and both say the same."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="pip install 'rheostat[torch]'")

from rheostat.backends.torch_rehearsal import Memory  # noqa: E402


class Trunk(torch.nn.Module):  # type: ignore[misc]
    """Counts how often it computes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 8)
        self.calls: list[int] = []

    def forward(self, x: Any) -> Any:
        self.calls.append(len(x))
        return torch.tanh(self.layer(x))


class Net(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, trunk: Trunk, head: Any) -> None:
        super().__init__()
        self.trunk = trunk
        self.head = head

    def forward(self, x: Any) -> Any:
        return self.head(self.trunk(x))


class Writes(torch.nn.Module):  # type: ignore[misc]
    """Changes what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))

    def forward(self, x: Any) -> Any:
        x += 1.0
        return x * self.weight


ROWS = torch.arange(8.0).reshape(2, 4)


def test_the_trial_of_a_new_head_computes_the_head_alone_and_says_what_the_whole_says() -> None:
    memory, trunk = Memory(), Trunk()
    one, other = (Net(trunk, torch.nn.Linear(8, 2)) for _ in range(2))
    with torch.no_grad():
        for net in (one, other):
            assert torch.equal(memory.rehearsed(net)(ROWS.clone()), net(ROWS))
        trunk.calls.clear()
        assert torch.equal(memory.rehearsed(other)(ROWS.clone()), other(ROWS))
        assert trunk.calls == [2]  # by the whole model, for comparison
        memory.rehearsed(other)(ROWS.clone() + 1.0)
    assert trunk.calls == [2, 2]  # other rows are computed


def test_within_one_trial_a_row_that_is_asked_twice_is_computed_twice() -> None:
    trunk = Trunk()
    trial = Memory().rehearsed(Net(trunk, torch.nn.Linear(8, 2)))
    with torch.no_grad():
        trial(ROWS.clone())
        trial(ROWS.clone())
    assert trunk.calls == [2, 2]


def test_a_trunk_with_other_weights_is_another_one() -> None:
    memory, trunk, head = Memory(), Trunk(), torch.nn.Linear(8, 2)
    changed = copy.deepcopy(trunk)
    with torch.no_grad():
        changed.layer.weight += 1.0
        memory.rehearsed(Net(trunk, head))(ROWS.clone())
        new = Net(changed, head)
        assert torch.equal(memory.rehearsed(new)(ROWS.clone()), new(ROWS))


def test_a_part_that_writes_into_what_it_is_given_does_so_every_time() -> None:
    memory, part = Memory(), Writes()
    with torch.no_grad():
        for _ in range(3):
            given = ROWS.clone()
            said = memory.rehearsed(part)(given)
            assert torch.equal(given, ROWS + 1.0)
            assert torch.equal(said, ROWS + 1.0)
