"""Models in processes of their own as the config asks for them: through the router and the gateway, really killed."""

from __future__ import annotations

import asyncio
import io
import os
import re
import signal
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from PIL import Image

from rheostat.backends.interpreter import holds
from rheostat.config import load_config
from rheostat.engine.engine import Served
from rheostat.errors import ConfigError
from rheostat.gateway.app import Gateway
from rheostat.pool import Model
from rheostat.pool.worker.workers import Workers
from rheostat.resilience import ramp as ramps
from rheostat.resilience.ramp import RampSettings
from rheostat.router import Router

MODULE = """
import os, re, time
def told(rows):
    for row in rows:
        if row == "exit": os._exit(3)
        if row == "hang": time.sleep(60)
        if row == "hold": re.match("(a|a)*b", "a" * 40)
        if row == "slow": time.sleep(0.5)
    return [{"label": "said", "confidence": 0.9, "output": {"pid": os.getpid(), "rows": len(rows)}} for _ in rows]
def busy(rows):
    until = time.perf_counter() + 0.02 * len(rows)
    while time.perf_counter() < until: pass
    return told(rows)
def patient(rows):
    time.sleep(0.02)
    return told(rows)
"""
FIRST = """
class first:
    def __init__(self, parent):
        assert parent == os.getpid(), "only one process may have this"
    def __call__(self, rows):
        return busy(rows)
"""
ROUTES = "routes: {default: {policy: big, models: [big], deadline: 5s, fallback: {retry: 1}}}"
LADDER = """
  small: {backend: python, callable: "said:told", probe: hello, run: inline}
routes: {default: {policy: big, deadline: 5s, fallback: {retry: 0, lighter: true}}}
"""


def written(folder: Path, big: str, rest: str = ROUTES) -> str:
    (folder / "said.py").write_text(MODULE)
    path = folder / "rheostat.yaml"
    path.write_text(f"models:\n  big: {{backend: python, probe: hello, {big}}}\n{rest.strip(chr(10))}\n")
    return str(path)


@asynccontextmanager
async def routing(path: str) -> AsyncIterator[Router]:
    router = await Router.open(path)
    try:
        yield router
    finally:
        await router.aclose()


def run(body: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await body()

    asyncio.run(bounded())


def big(router: Router) -> Model:
    return router.plan.pool["big"]


def workers(router: Router) -> Workers:
    found = big(router).workers
    assert found is not None
    return found


def pids(router: Router) -> list[int]:
    return [each["pid"] for each in workers(router).status(0.0)["processes"] if "pid" in each]


def said(served: Served) -> Any:
    """Which process answered: the pid in the answer."""
    assert served.error is None, served.error
    assert served.prediction is not None
    return served.prediction.output["pid"]


async def until(true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("more", "path", "told"),
    [
        ("workers: 2, resident: false", "models.big.workers", "remove it, or remove `resident: false`"),
        ("workers: 2, run: thread", "models.big.run", "remove one of the two"),
        ("workers: 2, run: inline", "models.big.run", "remove one of the two"),
        ("workers: {stuck: 1s}, timeout: 2s", "models.big.timeout", "set `workers.stuck` to more, or shorten `timeout`"),
        ("workers: 2, batch: {max_rows: 4, instances: 3}", "models.big.batch.instances", "remove it and set `workers`"),
        ("workers: 2, adaptive: {}", "models.big.adaptive", "remove it, or set `workers`"),
        ("workers: 0", "models.big.workers", "1 or more"),
        ("workers: {memory: lots}", "models.big.workers.memory", "such as 512MiB or 2GiB"),
        ("workers: {cpus: [0, 0]}", "models.big.workers.cpus", "names a CPU twice"),
        ("run: process, resident: false", "models.big.run", "remove `resident: false`"),
    ],
)
def test_what_cannot_be_is_refused_with_field_and_fix(tmp_path: Path, more: str, path: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(written(tmp_path, f'callable: "said:told", {more}'))
    problem = next(each for each in caught.value.problems if each.path == path)
    assert told in problem.message


def test_a_model_elsewhere_gets_no_process(tmp_path: Path) -> None:
    path = tmp_path / "rheostat.yaml"
    path.write_text(f"models: {{big: {{backend: http, url: 'http://127.0.0.1:1/x', workers: 2}}}}\n{ROUTES}\n")
    with pytest.raises(ConfigError, match="computes elsewhere, so it needs no process here; remove `workers`"):
        load_config(str(path))


def test_a_coroutine_gets_no_process_and_leaves_none(tmp_path: Path) -> None:
    path = written(tmp_path, 'callable: "said:waits", workers: 2')
    (tmp_path / "said.py").write_text(MODULE + "async def waits(rows): return told(rows)\n")

    async def body() -> None:
        with pytest.raises(ConfigError, match="or on the event loop, not in a process"):
            await Router.open(path)

    run(body)


def test_labels_that_differ_leave_no_process(tmp_path: Path) -> None:
    path = written(
        tmp_path, 'callable: "said:told", labels: ["said", "other"], workers: 2', "labels: [said, third]\n" + ROUTES
    )
    with pytest.raises(ConfigError):
        load_config(path)
    path = written(tmp_path, 'callable: "said:labelled", workers: 2', "labels: [said, third]\n" + ROUTES)
    (tmp_path / "said.py").write_text(
        MODULE + "def labelled(rows): return told(rows)\nlabelled.labels = ('said', 'other')\n"
    )

    others = psutil.Process().children()

    async def body() -> None:
        with pytest.raises(ConfigError, match="missing third; not listed: other"):
            await Router.open(path)
        assert set(psutil.Process().children()) <= set(others)

    run(body)


def test_what_is_wrapped_around_other_models_is_wrapped_around_these(tmp_path: Path) -> None:
    image = "prepare: {image: {size: [8, 8], colour: grey, layout: flat}}"
    path = written(tmp_path, f'callable: "said:bright", workers: 1, {image}, calibration: c.json')
    (tmp_path / "said.py").write_text(MODULE + "def bright(rows): return [('white', float(r.mean()) * 0.8) for r in rows]\n")
    (tmp_path / "c.json").write_text('{"method": "temperature", "t": 2.0}')
    picture = io.BytesIO()
    Image.new("RGB", (20, 10), "white").save(picture, "PNG")

    async def body() -> None:
        async with routing(path) as router:
            served = await router.serve(router.request({"image": b64encode(picture.getvalue()).decode()}))
            assert served.prediction is not None, served.error
            assert served.prediction.label == "white"
            assert served.prediction.confidence == pytest.approx(1 / (1 + (0.2 / 0.8) ** 0.5))

    run(body)


def test_a_killed_process_costs_a_retry_and_its_part_of_the_ramp(tmp_path: Path) -> None:
    path = written(tmp_path, 'callable: "said:told", workers: 2, ramp: {seconds: 100s}')

    async def body() -> None:
        async with routing(path) as router:
            before = pids(router)
            assert big(router).status(0.0)["runs"] == "process"
            assert big(router).limit == 2
            begun = [asyncio.ensure_future(router.serve(router.request("slow"))) for _ in range(2)]
            waiting = [asyncio.ensure_future(router.serve(router.request(f"row {number}"))) for number in range(20)]
            await until(lambda: all(each["state"] == "busy" for each in workers(router).status(0.0)["processes"]))
            os.kill(before[0], signal.SIGKILL)
            answered = [said(await each) for each in [*begun, *waiting]]
            assert len(answered) == 22
            assert before[0] not in answered
            await until(lambda: workers(router).up == 2)
            share = big(router).share(router.clock.monotonic())
            assert 0.5 <= share < 0.6  # one of two had served all the time
            assert workers(router).restarts["ended"] == 1
            assert b'rheostat_worker_restarts_total{model="big",reason="ended"} 1' in router.metrics.render()
            assert b'rheostat_workers_up{model="big"} 2' in router.metrics.render()

    run(body)


def test_work_with_side_effects_is_not_done_again(tmp_path: Path) -> None:
    path = written(tmp_path, 'callable: "said:told", workers: 1, side_effects: true')

    async def body() -> None:
        async with routing(path) as router:
            served = await router.serve(router.request("exit"))
            assert served.error is not None
            (outcome,) = served.record.outcomes
            assert outcome.failure is not None
            assert outcome.failure.kind == "uncertain"
            assert "ended with status 3" in outcome.failure.message
            assert len(outcome.attempts) == 1

    run(body)


def test_health_is_not_good_while_nobody_can_answer(tmp_path: Path) -> None:
    path = written(
        tmp_path, 'callable: "said:told", workers: {count: 1, stuck: 20s}, timeout: 300ms, breaker: {failureThreshold: 0}'
    )

    async def body() -> None:
        async with routing(path) as router:
            gateway = Gateway(router)
            assert gateway._ready().status == 200
            served = await router.serve(router.request("hang", timeout_s=0.3))
            assert served.error is not None
            await until(lambda: not router.can_answer)  # it hangs: its caller has gone and it computes on
            assert gateway._ready().status == 503
            assert gateway.inference.core.model_ready("big", "") is False
            served = await router.serve(router.request("x"))
            assert served.record.outcomes[0].failure is not None
            assert served.record.outcomes[0].failure.kind == "unavailable"
            assert served.record.outcomes[0].attempts == ()  # at once, not after the model's timeout
            assert "do not answer" in big(router).why(router.clock.monotonic())
            os.kill(pids(router)[0], signal.SIGKILL)
            await until(lambda: router.can_answer and workers(router).up == 1)
            assert said(await router.serve(router.request("x"))) in pids(router)
            assert gateway._ready().status == 200

    run(body)


def test_while_processes_are_down_a_lighter_model_answers(tmp_path: Path) -> None:
    path = written(tmp_path, 'callable: "said:told", workers: 1, lighter: small', LADDER)

    async def body() -> None:
        async with routing(path) as router:
            for _ in range(4):  # it crashes again and again, so the pauses grow
                served = await router.serve(router.request("exit", force_model="big"))
                await until(lambda: workers(router).up == 1 or workers(router).wait_s(router.clock.monotonic()) > 0.0)
            served = await router.serve(router.request("x"))
            assert served.record.selected_model == "small"
            assert router.can_answer

    run(body)


def test_a_batch_goes_to_one_process_and_its_neighbours_live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rheostat.opening.PATIENCE_S", 30.0)  # on a busy machine a process may take long to start
    path = written(
        tmp_path, 'callable: "said:told", workers: 2, batch: {max_rows: 8, max_wait: 50ms}', ROUTES.replace("5s", "60s")
    )

    async def body() -> None:
        async with routing(path) as router:
            batched = big(router).batched
            assert batched is not None
            assert batched.settings.instances == 2
            first = [asyncio.ensure_future(router.serve(router.request("slow"))) for _ in range(2)]
            await asyncio.sleep(0.05)
            rows = ["a", "b", "exit", "d"]
            served = await asyncio.gather(*(router.serve(router.request(row)) for row in rows), *first)
            wrong = [row for row, each in zip(rows, served, strict=False) if each.error is not None]
            assert wrong == ["exit"]

    run(body)


def test_a_model_that_keeps_others_waiting_moves_and_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []

    def holds(_backend: object, settings: Any) -> bool:
        measured.append(settings.callable)
        return "busy" in settings.callable

    monkeypatch.setattr("rheostat.opening.holds_interpreter", holds)  # a busy machine measures nothing; see below
    rest = """
  still: {backend: python, callable: "said:patient", probe: hello}
  kept: {backend: python, callable: "said:busy", probe: hello, run: thread}
  quick: {backend: python, callable: "said:told", probe: hello}
routes: {default: {policy: big}}
"""
    path = written(tmp_path, 'callable: "said:busy"', rest)

    async def body() -> None:
        async with routing(path) as router:
            runs = {name: model.runs for name, model in router.plan.pool.models.items()}
            assert runs == {"big": "process", "still": "thread", "kept": "thread", "quick": "inline"}
            assert measured == ["said:busy", "said:patient"]  # the quick one is not even measured
            assert said(await router.serve(router.request("x"))) != os.getpid()

    run(body)


def test_whether_others_wait_is_measured() -> None:
    def holding() -> None:
        re.match("(a|a)*b", "a" * 19)  # some 50 ms in C

    assert any(holds(holding) for _ in range(20))  # on a busy machine a measure may say nothing
    assert not all(holds(lambda: time.sleep(0.03)) for _ in range(3))


def test_a_model_that_cannot_move_stays_in_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rheostat.opening.holds_interpreter", lambda *_: True)
    path = written(tmp_path, f'callable: "said:first", args: {{parent: {os.getpid()}}}')
    (tmp_path / "said.py").write_text(MODULE + FIRST)

    async def body() -> None:
        async with routing(path) as router:
            assert big(router).runs == "thread"
            assert said(await router.serve(router.request("x"))) == os.getpid()

    run(body)


def test_no_replacement_opens_changed_files_and_a_reload_takes_them_up(tmp_path: Path) -> None:
    path = written(tmp_path, 'callable: "said:told", workers: {count: 1, backoff: 300ms}, health: {interval: 100ms}')

    async def body() -> None:
        async with routing(path) as router:
            assert await router.reload()
            kept = pids(router)
            (tmp_path / "said.py").write_text(MODULE + "# another\n")
            assert pids(router) == kept
            os.kill(kept[0], signal.SIGKILL)
            await until(lambda: workers(router).restarts["start"] > 0)
            assert "have changed since the config was taken up" in workers(router).why
            await until(lambda: not big(router).health.healthy)  # a check that finds nobody is no good check
            assert await router.reload()
            assert said(await router.serve(router.request("x"))) in pids(router)
            assert pids(router) != kept

    run(body)


def test_the_loop_answers_while_a_model_holds_its_interpreter(tmp_path: Path) -> None:
    path = written(tmp_path, 'callable: "said:told", workers: {count: 1, stuck: 1s}, timeout: 900ms')

    async def body() -> None:
        async with routing(path) as router:
            gateway, answers = Gateway(router), 0
            work = asyncio.ensure_future(router.serve(router.request("hold")))
            while not work.done():
                assert gateway._ready().status == 200
                answers += 1
                await asyncio.sleep(0.01)
            assert answers > 10  # in this process the first look would have waited for minutes

    run(body)


def test_a_part_that_stayed_is_where_the_climb_goes_on() -> None:
    settings = RampSettings(seconds=100.0)  # type: ignore[arg-type]
    state = ramps.begun(settings, 1000.0, 0.75)
    assert state is not None
    assert ramps.share(state, settings, 1000.0) == pytest.approx(0.75)
    assert ramps.share(state, settings, 1015.0) == pytest.approx(0.9)
    assert ramps.begun(settings, 1000.0, 1.0) is None
    whole = ramps.begun(settings, 1000.0)
    assert whole is not None
    assert ramps.share(whole, settings, 1000.0) == 0.05
