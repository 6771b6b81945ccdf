"""Real ONNX files that are in memory only while they are wanted, through the Router and the gateway."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from rheostat.backends.onnx import OnnxModel
from rheostat.engine.engine import Served
from rheostat.gateway.handle import ServerHandle
from rheostat.pool import Backend, Model, memory
from rheostat.pool.on_demand import OnDemand
from rheostat.router import Router

PART = 4 * 2**20  # so large that what the rest of this process takes and frees meanwhile weighs little
WIDTH = 2048
LIMIT = 100 * PART
ROW = {"a": 1.0, "b": 0.0}
LABELS = "['no', 'yes']"
NAMES = ("a", "b", "c", "d")


def write_model(path: Path, answer: int, parts: int = 8) -> None:
    """Write a model whose weights fill `parts` times 4 MiB and which always says the label of number `answer`."""
    chance = np.random.default_rng(answer + parts)
    sides = [(2, WIDTH), *[(WIDTH, WIDTH)] * (parts // 4), (WIDTH, 2)]
    weights = [
        numpy_helper.from_array(chance.random(each, dtype=np.float32) / WIDTH, f"w{n}") for n, each in enumerate(sides)
    ]
    weights.append(numpy_helper.from_array(np.array([5.0, 0.0] if answer == 0 else [0.0, 5.0], dtype=np.float32), "says"))
    nodes = [helper.make_node("MatMul", ["X" if n == 0 else f"h{n - 1}", f"w{n}"], [f"h{n}"]) for n in range(len(sides))]
    nodes += [helper.make_node("Add", [f"h{len(sides) - 1}", "says"], ["logits"])]
    nodes += [helper.make_node("Softmax", ["logits"], ["probabilities"])]
    given = helper.make_tensor_value_info("X", TensorProto.FLOAT, [None, 2])
    made = helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [None, 2])
    graph = helper.make_graph(nodes, "g", [given], [made], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(path))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[int, bytes]:
    folder = tmp_path_factory.mktemp("models")
    for answer in (0, 1):
        write_model(folder / f"{answer}.onnx", answer)
    write_model(folder / "2.onnx", 0, 4)
    return {answer: (folder / f"{answer}.onnx").read_bytes() for answer in (0, 1, 2)}


class Place:
    """A folder with four models of 8 parts and a small one, and a container of 100 parts of which 55 are in use besides."""

    def __init__(self, folder: Path, files: dict[int, bytes]) -> None:
        self.folder = folder
        self.files = files
        self.root = folder / "root"
        self.group = self.root / "sys/fs/cgroup"
        self.group.mkdir(parents=True)
        (self.root / "proc/self").mkdir(parents=True)
        (self.root / "proc/self/cgroup").write_text("0::/\n")
        (self.group / "memory.max").write_text(f"{LIMIT}\n")
        (self.group / "memory.stat").write_text("inactive_file 0\n")
        for number, name in enumerate(NAMES):
            (folder / f"{name}.onnx").write_bytes(files[number % 2])
        (folder / "light.onnx").write_bytes(files[2])
        memory.settle_heaps()
        self.others = 0
        self.begin()

    def begin(self, others: int = 0) -> None:
        """Count from here on what the process takes, beside what others do."""
        memory.trim()
        self.began = memory.process_bytes()
        self.others = others
        self.told()

    def told(self) -> None:
        """Let the container's file say what is used now."""
        used = memory.process_bytes() - self.began + self.others
        (self.group / "memory.current").write_text(f"{max(0, used)}\n")

    def config(self, more: str = "", fallback: str = "{retry: 0, peer: false, lighter: false}", head: str = "") -> str:
        models = "".join(
            f"  {name}: {{backend: onnx, path: {name}.onnx, features: [a, b], labels: {LABELS}, resident: false, keep: 0s, "
            f"lighter: light{more}}}\n"
            for name in NAMES
        )
        routes = "".join(
            f"  {name}: {{policy: {name}, models: [{name}, light], deadline: 20s, fallback: {fallback}}}\n" for name in NAMES
        )
        light = f"  light: {{backend: onnx, path: light.onnx, features: [a, b], labels: {LABELS}}}\n"
        path = self.folder / "rheostat.yaml"
        path.write_text(f"models:\n{models}{light}routes:\n{routes}{head}")
        return str(path)


@pytest.fixture
def place(tmp_path: Path, files: dict[int, bytes], monkeypatch: pytest.MonkeyPatch) -> Place:
    made = Place(tmp_path, files)
    ceilings = partial(memory.ceilings, root=made.root)

    def used(each: memory.Ceiling) -> int:
        made.told()
        return each.used()

    def watched(settings: Any) -> tuple[memory.Ceiling, ...]:
        return tuple(each._replace(used=partial(used, each)) for each in ceilings(settings))

    monkeypatch.setattr(memory, "ceilings", watched)
    return made


def run(place: Place, check: Callable[[Router], Coroutine[Any, Any, None]], **config: str) -> None:
    async def opened() -> None:
        router = await Router.open(place.config(**config))
        place.begin(55 * PART)
        try:
            await check(router)
        finally:
            await router.aclose()

    asyncio.run(opened())


def guest(router: Router, name: str) -> OnDemand:
    found = router.plan.pool[name].on_demand
    assert found is not None
    return found


def loaded(router: Router) -> list[str]:
    return [name for name in NAMES if guest(router, name).loaded]


async def ask(router: Router, name: str) -> Served:
    return await router.serve(router.request(ROW, route=name))


def label(served: Served) -> str:
    assert served.error is None, served.error
    assert served.prediction is not None
    return served.prediction.label


async def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 10.0
    while not holds():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


def test_many_first_requests_load_a_model_once_and_all_are_answered(place: Place) -> None:
    async def check(router: Router) -> None:
        assert loaded(router) == []
        assert all(guest(router, name).tally.loads == 1 for name in NAMES)  # to be checked and measured
        served = await asyncio.gather(*(ask(router, "b") for _ in range(64)))
        assert {label(each) for each in served} == {"yes"}
        assert all(each.record.level == 0 for each in served)
        assert guest(router, "b").tally.loads == 2
        assert loaded(router) == ["b"]

    run(place, check)


def test_the_size_is_measured_and_who_was_used_longest_ago_goes(place: Place) -> None:
    async def check(router: Router) -> None:
        sizes = [guest(router, name).holding.bytes for name in NAMES]
        assert all(7 * PART < size < 16 * PART for size in sizes), sizes
        for name in ("a", "b", "c", "a"):  # 55 + 3 * 8 of 100 parts, and 85 is the high mark
            label(await ask(router, name))
        assert loaded(router) == ["a", "b", "c"]
        assert label(await ask(router, "d")) == "yes"
        assert loaded(router)[-1] == "d"
        assert "b" not in loaded(router)
        assert guest(router, "b").tally.evictions == 1
        place.told()
        assert int((place.group / "memory.current").read_text()) < LIMIT

    run(place, check)


def test_traffic_over_more_models_than_fit_is_all_answered(place: Place) -> None:
    async def check(router: Router) -> None:
        place.others = 66 * PART  # all four fit at no time, whatever else this process frees or takes meanwhile
        wanted = {name: ("no", "yes")[number % 2] for number, name in enumerate(NAMES)}

        async def client(number: int) -> None:
            for turn in range(30):
                name = NAMES[(turn // 6 + turn % 2 + number) % 4]
                assert label(await ask(router, name)) == wanted[name]

        await asyncio.gather(*(client(number) for number in range(6)))
        assert sum(guest(router, name).tally.evictions for name in NAMES) > 2
        assert all(router.plan.pool[name].breaker.name == "closed" for name in NAMES)
        assert all(guest(router, name).holding.users == 0 for name in NAMES)

    run(place, check)


def test_a_pinned_model_stays_whatever_is_asked(place: Place) -> None:
    async def check(router: Router) -> None:
        label(await ask(router, "a"))
        guest(router, "a").residency.pin(guest(router, "a"), True)
        for name in ("b", "c", "d", "b", "c"):
            label(await ask(router, name))
        assert "a" in loaded(router)
        assert guest(router, "a").tally.evictions == 0
        place.others = 95 * PART  # something else fills the container
        guest(router, "a").residency.relieve()
        assert loaded(router) == ["a"]

    run(place, check)


def test_who_finds_no_room_is_stood_in_for(place: Place) -> None:
    async def check(router: Router) -> None:
        place.others = 95 * PART
        served = await asyncio.gather(*(ask(router, "b") for _ in range(20)))
        assert {label(each) for each in served} == {"no"}
        assert {(each.record.level, each.record.selected_model) for each in served} == {(3, "light")}
        failures = [outcome.failure for each in served for outcome in each.record.outcomes if outcome.model == "b"]
        assert any(failure is not None and "no room" in failure.message for failure in failures)
        assert guest(router, "b").tally.failures == 0  # no load was tried
        assert "no room" in router.status()["models"]["b"]["why"]

    run(place, check, fallback="{retry: 0}")


GONE = {"gone": lambda path: path.rename(path.with_suffix(".aside")), "damaged": lambda path: path.write_bytes(b"no model")}


@pytest.mark.parametrize("fault", GONE)
def test_a_file_that_cannot_be_loaded_is_stood_in_for_once_tried_and_seen(place: Place, fault: str) -> None:
    async def check(router: Router) -> None:
        path = place.folder / "b.onnx"
        GONE[fault](path)
        served = await asyncio.gather(*(ask(router, "b") for _ in range(50)))
        assert {(label(each), each.record.level) for each in served} == {("no", 3)}
        model = router.plan.pool["b"]
        assert guest(router, "b").tally.failures == 1  # and not fifty times
        assert model.breaker.name == "closed"  # the load has a pause of its own, which doubles
        assert 0.0 < model.retry_after(router.clock.monotonic()) <= 1.0
        assert not model.admits(router.clock.monotonic())
        assert "it cannot be loaded" in router.status()["models"]["b"]["why"]
        failed = [each.failure for one in served for each in one.record.outcomes if each.model == "b" and each.failure]
        assert {each.kind for each in failed} == {"unavailable"}
        assert any("it cannot be loaded" in each.message for each in failed)
        assert re.search(r'rheostat_load_failures_total\{model="b"\} 1', router.metrics.render().decode())
        assert label(await ask(router, "a")) == "no"  # the others are as they were
        if fault == "gone":
            path.with_suffix(".aside").rename(path)
            await until(lambda: model.admits(router.clock.monotonic()))
            served = [await ask(router, "b")]
            assert (label(served[0]), served[0].record.level) == ("yes", 0)
            assert model.why(router.clock.monotonic()) == ""
        else:
            await until(lambda: model.admits(router.clock.monotonic()))
            assert (await ask(router, "b")).record.level == 3
            assert guest(router, "b").tally.failures == 2
            assert 1.0 < model.retry_after(router.clock.monotonic()) <= 2.0
            assert not await router.reload()
            assert "models.b" in str(router.last_error)
            path.write_bytes(place.files[1])
            assert await router.reload(), router.last_error
            assert (await ask(router, "b")).record.level == 0

    run(place, check, fallback="{retry: 2}")


def test_rows_of_a_batch_wait_for_one_load(place: Place) -> None:
    async def check(router: Router) -> None:
        model = router.plan.pool["b"]
        assert model.batched is not None
        served = await asyncio.gather(*(ask(router, "b") for _ in range(40)))
        assert {label(each) for each in served} == {"yes"}
        assert guest(router, "b").tally.loads == 2
        assert model.batched.tally.inferences == 40 > model.batched.tally.executions
        label(await ask(router, "a"))
        assert guest(router, "b").residency.unload(guest(router, "b"))
        assert label(await ask(router, "b")) == "yes"

    run(place, check, more=", batch: {max_rows: 8}")


class Gate:
    """Holds loads of `path` until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
        self.open = threading.Event()
        self.held = threading.Event()
        original = OnnxModel.open

        def slowly(settings: OnnxModel, base: str) -> Backend:
            if settings.path == path and not self.open.is_set():
                self.held.set()
                assert self.open.wait(20)
            return original(settings, base)

        monkeypatch.setattr(OnnxModel, "open", slowly)


def test_a_request_whose_time_ends_during_a_load_is_stood_in_for_and_blames_nobody(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(router: Router) -> None:
        gate = Gate(monkeypatch, "b.onnx")
        served = await ask(router, "b")
        assert (label(served), served.record.level) == ("no", 3)
        (failure,) = [each.failure for each in served.record.outcomes if each.model == "b"]
        assert failure is not None
        assert (failure.kind, "it is being loaded" in failure.message) == ("unavailable", True)
        assert router.plan.pool["b"].error_rate(router.clock.monotonic()) == 0.0
        gate.open.set()
        await until(lambda: guest(router, "b").loaded)
        assert label(await ask(router, "b")) == "yes"
        assert guest(router, "b").tally.loads == 2

    run(place, check, more=", timeout: 200ms", fallback="{retry: 0}")


@pytest.mark.parametrize("change", ["another version", "nothing of it", "it is gone", "always in memory"])
def test_a_new_config_while_a_model_is_loaded(place: Place, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    async def check(router: Router) -> None:
        old: Model = router.plan.pool["b"]
        gate = Gate(monkeypatch, "b.onnx")
        asked = [asyncio.create_task(ask(router, "b")) for _ in range(5)]
        await asyncio.to_thread(gate.held.wait, 10)
        path = Path(place.config(fallback="{retry: 0}"))
        text = path.read_text()
        line = next(line for line in text.splitlines() if line.startswith("  b: {backend"))
        route = next(line for line in text.splitlines() if line.startswith("  b: {policy"))
        path.write_text({
            "another version": text.replace(line, line.replace("b.onnx,", "b.onnx, version: '2',")),
            "nothing of it": text.replace("deadline: 20s", "deadline: 21s"),
            "it is gone": text.replace(line + "\n", "").replace(route + "\n", ""),
            "always in memory": text.replace(line, line.replace("resident: false, keep: 0s, ", "")),
        }[change])  # fmt: skip
        reloading = asyncio.create_task(router.reload())
        await asyncio.sleep(0.1)
        gate.open.set()
        assert await reloading, router.last_error
        served = await asyncio.gather(*asked)
        assert {(label(each), each.record.selected_version) for each in served} == {("yes", "1")}
        if change != "it is gone":
            after = await ask(router, "b")
            assert label(after) == "yes"
            assert after.record.selected_version == ("2" if change == "another version" else "1")
        assert (router.plan.pool.models.get("b") is old) == (change == "nothing of it")
        if change != "nothing of it":
            assert old.on_demand is not None
            keys = old.on_demand.residency._guests
            await until(lambda: old.on_demand is not None and old.on_demand.key not in keys)

    run(place, check)


def test_memory_is_back_when_the_router_is_closed(place: Place) -> None:
    def once() -> int:
        async def check(router: Router) -> None:
            for name in NAMES[:3]:
                label(await ask(router, name))

        run(place, check)
        end = time.monotonic() + 10.0
        while any(thread.name == "unload" for thread in threading.enumerate()):
            assert time.monotonic() < end
            time.sleep(0.01)
        memory.trim()
        return memory.process_bytes()

    seen = [once() for _ in range(4)]
    assert max(seen[1:]) - seen[0] < 6 * PART, [each // PART for each in seen]  # a model that stayed would be 8


@pytest.fixture
def gateway(place: Place) -> Iterator[ServerHandle]:
    head = 'admin: {secret: "an admin secret of some length", port: 0}\n'
    with ServerHandle(place.config(fallback="{retry: 0}", head=head)) as handle:
        yield handle


def post(url: str, body: object) -> tuple[int, dict[str, Any], dict[str, str]]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, json.loads(answer.read()), dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read()), dict(error.headers)


def test_clients_see_the_level_and_not_the_path(place: Place, gateway: ServerHandle) -> None:
    body = {"data": ROW, "route": {"name": "b"}}
    status, answer, _ = post(f"{gateway.url}/v1/predict", body)
    assert (status, answer["data"]["final_label"]) == (200, "yes")
    assert post(f"{gateway.url}/v1/predict", {**body, "route": {"name": "a"}})[0] == 200
    request = urllib.request.Request(f"{gateway.admin_url}/admin/models/b/unload", b"",
                                     {"authorization": "Bearer an admin secret of some length"})  # fmt: skip
    with urllib.request.urlopen(request, timeout=10) as done:
        assert json.loads(done.read())["done"]
    (place.folder / "b.onnx").unlink()
    status, answer, _ = post(f"{gateway.url}/v1/predict", body)
    assert status == 200
    info = answer["data"]["route_info"]
    assert (info["selected_model"], info["fallback_level"]) == ("light", 3)
    assert str(place.folder) not in json.dumps(answer)
