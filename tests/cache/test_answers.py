"""The store of last good answers: bounds, order, keys, and what may go in."""

from __future__ import annotations

from collections import OrderedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec import structs

from rheostat.cache.answers import ENTRY_BYTES, Answers, Question, is_good
from rheostat.types import Prediction, Request, RouteRecord

GOOD = RouteRecord(
    id="r", wall=0.0, route="default", status="ok", selected_model="a", selected_version="1", config_version="c"
)
ALL = Question(salt="default/1", meta=None, headers=None, session=True)


def asked(**fields: object) -> Request:
    return Request(**{"id": "r", "data": "hello", **fields})  # type: ignore[arg-type]


def test_an_answer_comes_back_with_age_model_and_version() -> None:
    answers = Answers(10, 100_000, 60.0)
    key = ALL.key(asked())
    answers.keep(key, Prediction("yes", 0.9, {"yes": 0.9, "no": 0.1}, {"why": ["x"]}), GOOD, 100.0)
    found = answers.recall(key, 112.5)
    assert found is not None
    assert (found.prediction, found.age_s) == (Prediction("yes", 0.9, {"yes": 0.9, "no": 0.1}, {"why": ["x"]}), 12.5)
    assert (found.model, found.version) == ("a", "1")
    assert answers.recall(ALL.key(asked(data="other")), 112.5) is None


def test_nothing_older_than_max_age_is_given_and_its_room_is_free_again() -> None:
    answers = Answers(10, 100_000, 60.0)
    key = ALL.key(asked())
    answers.keep(key, Prediction("yes"), GOOD, 0.0)
    assert answers.recall(key, 60.0) is not None
    assert answers.recall(key, 60.001) is None
    assert (len(answers), answers.bytes) == (0, 0)


def test_what_is_changed_afterwards_changes_no_kept_answer() -> None:
    answers = Answers(10, 100_000, 60.0)
    key = ALL.key(asked())
    scores = {"yes": 0.9, "no": 0.1}
    answers.keep(key, Prediction("yes", 0.9, scores), GOOD, 0.0)
    scores["yes"] = 0.0
    found = answers.recall(key, 1.0)
    assert found is not None
    assert found.prediction.scores == {"yes": 0.9, "no": 0.1}


@pytest.mark.parametrize(
    "change",
    [
        {"data": "hello "}, {"data": {"text": "hello"}}, {"tenant": "t"}, {"meta": {"risk": "high"}}, {"meta": {"risk": 1}},
        {"headers": {"x-tier": "gold"}}, {"session": "s"}, {"max_cost": 1.0},
    ],
)  # fmt: skip
def test_everything_that_changes_an_answer_is_in_the_key(change: dict[str, object]) -> None:
    assert ALL.key(asked(**change)) != ALL.key(asked())


def test_types_of_values_are_told_apart() -> None:
    values: list[object] = [1, 1.0, "1", True, None, float("nan"), [1], {"1": 1}, b"1"]
    keys = {ALL.key(asked(data={"x": value})) for value in values}
    assert len(keys) == len(values)
    assert None not in keys


def test_order_of_keys_and_tracing_change_nothing() -> None:
    one = asked(data={"a": 1, "b": {"c": 2, "d": 3}}, meta={"x": 1, "y": 2})
    two = asked(data={"b": {"d": 3, "c": 2}, "a": 1}, meta={"y": 2, "traceparent": "00-1", "x": 1}, id="another")
    assert ALL.key(one) == ALL.key(two)


def test_only_what_the_policy_reads_counts() -> None:
    few = Question(salt="default/1", meta=("risk",), headers=("x-tier",), session=False)
    base = few.key(asked())
    assert few.key(asked(meta={"shop": 7}, headers={"accept": "*/*"}, session="s")) == base
    assert few.key(asked(meta={"risk": "high"})) != base
    assert few.key(asked(headers={"x-tier": "gold"})) != base
    assert structs.replace(few, salt="default/2").key(asked()) != base


def test_what_cannot_be_written_down_is_not_kept() -> None:
    answers = Answers(10, 100_000, 60.0)
    strange = object()
    assert ALL.key(asked(data=strange)) is None
    assert ALL.key(asked(data="\ud800")) is None
    answers.keep(None, Prediction("yes"), GOOD, 0.0)
    answers.keep(ALL.key(asked()), Prediction("yes", output=strange), GOOD, 0.0)
    assert len(answers) == 0
    assert answers.recall(None, 0.0) is None


def test_an_answer_that_would_drive_out_all_others_is_not_kept_and_an_old_one_does_not_stand_for_it() -> None:
    answers = Answers(10, 16 * (ENTRY_BYTES + 100), 60.0)
    key = ALL.key(asked())
    answers.keep(key, Prediction("yes"), GOOD, 0.0)
    answers.keep(key, Prediction("yes", output="x" * 200), GOOD, 0.0)
    assert (len(answers), answers.bytes) == (0, 0)


@pytest.mark.parametrize(
    "change",
    [
        {"status": "error"}, {"status": "degraded", "level": 3}, {"status": "degraded", "level": 5}, {"level": 4},
        {"status": "cancelled"}, {"status": "rejected"}, {"forced": True}, {"review": "confidence 0.1 < 0.5"},
        {"missing": ("b",)}, {"status": "degraded", "fallback_reason": "router_unavailable: x"},
    ],
)  # fmt: skip
def test_only_good_complete_answers_are_kept(change: dict[str, object]) -> None:
    assert is_good(GOOD)
    assert is_good(structs.replace(GOOD, level=2))
    assert not is_good(structs.replace(GOOD, **change))


class Bounded(RuleBasedStateMachine):
    """Against a plain model: an ordered table from which the least recently used goes."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = Answers(4, 40 * ENTRY_BYTES, 30.0)
        self.model: OrderedDict[int, tuple[str, float]] = OrderedDict()
        self.now = 0.0

    def size(self) -> int:
        return sum(ENTRY_BYTES + len(answer) for answer in self.kept_bytes())

    def kept_bytes(self) -> list[bytes]:
        return [kept.answer for kept in self.answers._kept.values()]

    @rule(name=st.integers(0, 7), label=st.text(min_size=1, max_size=900))
    def keep(self, name: int, label: str) -> None:
        key = ALL.key(asked(data=name))
        self.answers.keep(key, Prediction(label), GOOD, self.now)
        if key in self.answers._kept:
            self.model[name] = (label, self.now)
            self.model.move_to_end(name)
            while len(self.model) > len(self.answers):
                self.model.popitem(last=False)
        else:
            self.model.pop(name, None)

    @rule(name=st.integers(0, 7))
    def recall(self, name: int) -> None:
        found = self.answers.recall(ALL.key(asked(data=name)), self.now)
        kept = self.model.get(name)
        if kept is None or self.now - kept[1] > 30.0:
            assert found is None
            self.model.pop(name, None)
        else:
            assert found is not None
            assert (found.prediction.label, found.age_s) == (kept[0], self.now - kept[1])
            self.model.move_to_end(name)

    @rule(seconds=st.floats(0.0, 20.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def bounds_hold(self) -> None:
        assert len(self.answers) <= 4
        assert self.answers.bytes == self.size() <= 40 * ENTRY_BYTES
        assert [ALL.key(asked(data=name)) for name in self.model] == list(self.answers._kept)


TestBounded = Bounded.TestCase
TestBounded.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@given(st.dictionaries(st.text(), st.one_of(st.integers(-5, 5), st.floats(), st.text(), st.none())), st.randoms())
@settings(max_examples=100, deadline=None)
def test_the_key_of_features_does_not_depend_on_their_order(data: dict[str, object], random: object) -> None:
    items = list(data.items())
    random.shuffle(items)  # type: ignore[attr-defined]
    assert ALL.key(asked(data=data)) == ALL.key(asked(data=dict(items)))
