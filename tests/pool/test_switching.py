"""Weights that change while requests are answered: every answer is by the version that its record names."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="pip install 'rheostat[torch]'")
safetensors = pytest.importorskip("safetensors.torch", reason="pip install 'rheostat[torch]'")

from rheostat.backends.torch import TorchClassifier  # noqa: E402
from rheostat.engine.engine import Served  # noqa: E402
from rheostat.pool import Model  # noqa: E402
from rheostat.router import Router  # noqa: E402
from rheostat.weights import WeightStore, make_delta  # noqa: E402

NETS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(2, 3)
        self.head = nn.Linear(3, 2)
    def forward(self, x): return self.head(self.trunk(x))

def net():
    with torch.device("meta"):
        return Net()
"""
ROW = {"a": 1.0, "b": 2.0}
LABELS = ["no", "yes"]


def weights(number: int) -> dict[str, Any]:
    """Weights whose answer tells their number: the logit of `yes` is number / 100, that of `no` 0."""
    return {
        "trunk.weight": torch.zeros(3, 2),
        "trunk.bias": torch.ones(3),
        "head.weight": torch.zeros(2, 3),
        "head.bias": torch.tensor([0.0, number / 100]),
    }


def number_in(served: Served) -> int:
    assert served.error is None
    assert served.prediction is not None
    scores = served.prediction.scores
    assert scores is not None
    return round(100 * float(torch.log(torch.tensor(scores["yes"] / scores["no"]))))


def version_in(served: Served) -> str:
    return served.record.selected_version


class Place:
    """A folder with the weights of many versions, and the config that names one of them."""

    def __init__(self, folder: Path, more: str = "") -> None:
        self.folder = folder
        self.more = more
        (folder / "switch_nets.py").write_text(NETS)
        self.store = WeightStore(folder / "store")
        self.base = self.file("base", weights(0))

    def file(self, name: str, tensors: dict[str, Any]) -> Path:
        path = self.folder / f"{name}.safetensors"
        safetensors.save_file(tensors, path, metadata={"labels": json.dumps(LABELS)})
        return path

    def whole(self, number: int) -> str:
        return f"weights: {self.file(f'w{number}', weights(number)).name}"

    def stored(self, number: int) -> str:
        added = self.store.add(self.file(f"s{number}", weights(number)), f"m{number}", replace=True)
        return f"weights: {added.path.relative_to(self.folder)}"

    def delta(self, number: int) -> str:
        make_delta(self.base, self.file(f"d{number}", weights(number)), self.folder / f"delta{number}.safetensors")
        return f"weights: base.safetensors, delta: delta{number}.safetensors"

    def head(self, number: int) -> str:
        tensors = {name: tensor for name, tensor in weights(number).items() if name.startswith("head.")}
        return f"weights: base.safetensors, head: {self.file(f'h{number}', tensors).name}"

    def config(self, written: str, number: int) -> Path:
        path = self.folder / "rheostat.yaml"
        net = f"backend: torch, module: 'switch_nets:net', features: [a, b], {written}, version: '{number}'{self.more}"
        path.write_text(
            "models:\n"
            f"  net: {{{net}}}\n"
            f"  other: {{backend: python, callable: 'switch_other:f', labels: {LABELS}}}\n"
            "routes: {default: {policy: net, fallback: {peer: false}}}\n"
        )
        (self.folder / "switch_other.py").write_text("def f(rows): return [('no', 0.5) for _ in rows]\n")
        return path


def model(router: Router) -> Model:
    return router.plan.pool["net"]


def module(router: Router) -> Any:
    backend = model(router).origin
    assert isinstance(backend, TorchClassifier)
    return backend._module


WAYS = ("whole", "stored", "delta", "head")


@pytest.mark.parametrize("run", ["inline", "thread"])
def test_every_answer_is_by_the_version_its_record_names(tmp_path: Path, run: str) -> None:
    place = Place(tmp_path, f", run: {run}")

    async def check() -> None:
        router = await Router.open(str(place.config(place.whole(1), 1)))
        seen: list[tuple[str, int]] = []
        done = False

        async def client() -> None:
            while not done:
                served = await router.serve(router.request(ROW))
                seen.append((version_in(served), number_in(served)))
                await asyncio.sleep(0)

        clients = [asyncio.create_task(client()) for _ in range(4)]
        for number in range(2, 42):
            place.config(getattr(place, WAYS[number % 4])(number), number)
            assert await router.reload(), router.last_error
            assert number_in(await router.apredict(ROW)) == number
        done = True
        await asyncio.gather(*clients)
        await router.aclose()
        assert seen
        assert all(version == str(number) for version, number in seen)

    asyncio.run(check())


@pytest.mark.parametrize("way", WAYS)
def test_what_does_not_change_is_the_same_object(tmp_path: Path, way: str) -> None:
    place = Place(tmp_path)

    async def check() -> None:
        first = place.stored(1) if way == "stored" else "weights: base.safetensors"
        router = await Router.open(str(place.config(first, 1)))
        trunk = module(router).trunk
        place.config(getattr(place, way)(7), 7)
        assert await router.reload(), router.last_error
        assert (module(router).trunk is trunk) == (way != "whole")
        assert number_in(await router.apredict(ROW)) == 7
        await router.aclose()

    asyncio.run(check())


def test_requests_in_flight_end_on_the_weights_they_began_with(tmp_path: Path) -> None:
    place = Place(tmp_path, ", run: thread")

    async def check() -> None:
        router = await Router.open(str(place.config("weights: base.safetensors", 1)))
        old = model(router)
        backend, began, go = old.backend, asyncio.Event(), asyncio.Event()
        predict, loop = backend.predict, asyncio.get_running_loop()

        def slow(rows: Any) -> Any:
            loop.call_soon_threadsafe(began.set)
            asyncio.run_coroutine_threadsafe(go.wait(), loop).result(10)
            return predict(rows)

        backend.predict = slow
        asked = asyncio.create_task(router.serve(router.request(ROW)))
        await began.wait()
        place.config(place.head(5), 5)
        assert await router.reload(), router.last_error
        assert number_in(await router.apredict(ROW)) == 5
        assert old.origin is not None
        assert old.origin._module is not None  # still open
        go.set()
        served = await asked
        assert (version_in(served), number_in(served)) == ("1", 0)
        assert old.origin._module is None  # closed with its last request
        assert number_in(await router.apredict(ROW)) == 5
        await router.aclose()

    asyncio.run(check())


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda place: place.file("w9", weights(9)).write_bytes(b"no"), "no safetensors file"),
        (
            lambda place: place.file("w9", weights(9) | {"head.bias": torch.tensor([float("nan")] * 2)}),
            "breaks the contract",
        ),
        (lambda place: place.file("w9", weights(9) | {"head.bias": torch.zeros(3)}), r"head\.bias is float32 \[3\]"),
        (lambda place: (place.folder / "w9.safetensors").unlink(), "w9.safetensors"),
    ],
)
def test_a_switch_that_fails_leaves_what_was_there(tmp_path: Path, spoil: Any, said: str) -> None:
    place = Place(tmp_path)

    async def check() -> None:
        router = await Router.open(str(place.config("weights: base.safetensors", 1)))
        before = model(router)
        place.config(place.whole(9), 9)
        spoil(place)
        assert not await router.reload()
        assert re.search(said, str(router.last_error)), router.last_error
        assert "models.net" in router.last_error
        assert model(router) is before
        served = await router.apredict(ROW)
        assert (version_in(served), number_in(served)) == ("1", 0)
        place.config(place.whole(9), 9)
        assert await router.reload(), router.last_error
        assert number_in(await router.apredict(ROW)) == 9
        await router.aclose()

    asyncio.run(check())


def test_a_delta_of_other_weights_changes_nothing(tmp_path: Path) -> None:
    place = Place(tmp_path)

    async def check() -> None:
        router = await Router.open(str(place.config(place.whole(3), 3)))
        written = place.delta(4).replace("base.safetensors", "w3.safetensors")
        place.config(written, 4)
        assert not await router.reload()
        assert "changes other weights" in str(router.last_error)
        assert number_in(await router.apredict(ROW)) == 3
        await router.aclose()

    asyncio.run(check())


@pytest.mark.parametrize("gradual", [True, False])
def test_a_version_that_is_new_may_come_little_by_little(tmp_path: Path, gradual: bool) -> None:
    place = Place(tmp_path, ", ramp: {on_switch: true, start: 0.1, seconds: 1h}" if gradual else "")

    async def check() -> None:
        router = await Router.open(str(place.config("weights: base.safetensors", 1)))
        assert model(router).share(router.clock.monotonic()) == 1.0
        place.config("weights: base.safetensors", 2)
        assert await router.reload(), router.last_error
        share = model(router).share(router.clock.monotonic())
        assert share == (pytest.approx(0.1) if gradual else 1.0)
        await router.aclose()

    asyncio.run(check())
