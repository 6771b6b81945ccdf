"""Health checks in service, of every kind of model, in virtual time and in real threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence

import pytest

from rheostat.chance import chance
from rheostat.clock import SystemClock
from rheostat.engine.prober import Prober
from rheostat.errors import ModelError
from rheostat.pool import Model, ModelSettings, Pool, Reply, Row
from rheostat.resilience.health import HealthSettings
from rheostat.testing import Act, Scripted, VirtualLoop, run_virtual, scripted_model
from rheostat.types import Failure, Prediction
from rheostat.types.duration import Duration

EVERY_SECOND = HealthSettings(interval=Duration(1.0), timeout=Duration(0.5))


class Page:
    """A check that answers as `says` tells for each check, counted from 0."""

    def __init__(self, says: Callable[[int], str]) -> None:
        self.says = says
        self.checks = 0

    async def acheck(self, timeout_s: float) -> None:
        said = self.says(self.checks)
        self.checks += 1
        if said == "hang":
            await asyncio.sleep(timeout_s * 10)
        if said == "raise":
            raise RuntimeError("the check itself is broken")
        if said == "self-cancelled":
            raise asyncio.CancelledError
        if said != "ok":
            raise ModelError(said, f"the page says {said}")


def checked(name: str, says: Callable[[int], str]) -> Model:
    return Model(name, ModelSettings(health=EVERY_SECOND), Scripted(Act()), check=Page(says))


def run(models: dict[str, Model], seconds: float, meanwhile: Callable[[VirtualLoop], None] | None = None) -> Pool:
    loop, pool = VirtualLoop(), Pool(models)

    async def main() -> None:
        prober = Prober(loop)
        prober.follow(pool.models.values())
        for _ in range(int(seconds * 10)):
            await asyncio.sleep(0.1)
            if meanwhile is not None:
                meanwhile(loop)
        await prober.aclose()
        assert len(asyncio.all_tasks()) == 1, "a check was left behind"

    run_virtual(main(), loop)
    return pool


def test_a_flapping_page_does_not_empty_the_pool_while_requests_are_answered() -> None:
    """Two of three checks fail, but real calls succeed: nobody goes. A check that raises stops no other."""
    models = {
        name: checked(name, lambda n, name=name: "ok" if chance(name, str(n)) < 1 / 3 else "upstream_error") for name in "ab"
    }
    models["c"] = checked("c", lambda _: "raise")
    went: list[str] = []

    def calls_succeed(loop: VirtualLoop) -> None:
        for name, model in models.items():
            if not model.begin(loop.time()):
                went.append(name)
            elif name != "c":
                model.ended(None, False, 0.01, loop.time())

    run(models, 120.0, calls_succeed)
    assert set(went) == {"c"}
    assert models["c"].why(0.0).endswith("RuntimeError: the check itself is broken")
    for name in "ab":
        page = models[name].check
        assert isinstance(page, Page)
        assert page.checks > 100


def test_three_in_a_row_take_it_out_and_two_good_ones_bring_it_back_under_its_ramp() -> None:
    models = {"a": checked("a", lambda n: "upstream_error" if n < 4 else "ok"), "b": checked("b", lambda _: "ok")}
    seen: list[tuple[bool, float]] = []
    run(models, 20.0, lambda loop: seen.append((models["a"].admits(loop.time()), models["a"].share(loop.time()))))
    out = [number for number, (there, _) in enumerate(seen) if not there]
    assert out == list(range(out[0], out[-1] + 1)), "out once, and back once"
    assert 20 <= out[0] <= 33
    assert 20 <= len(out) <= 50
    assert seen[out[-1] + 1][1] == pytest.approx(0.05)
    assert seen[-1][1] > 0.05


@pytest.mark.parametrize("how", ["hang", "raise", "self-cancelled", "connection"])
def test_every_way_to_fail_counts_and_ends_nothing(how: str) -> None:
    models = {"a": checked("a", lambda _: how), "b": checked("b", lambda _: "ok")}
    pool = run(models, 10.0)
    assert pool["a"].ejected
    assert pool["a"].health.checks >= 4
    assert pool["b"].health.healthy


def test_too_busy_is_a_good_answer() -> None:
    assert run({"a": checked("a", lambda _: "rate_limited"), "b": scripted_model("b")}, 10.0)["a"].health.healthy


def test_a_remote_model_without_a_page_answers_its_probe() -> None:
    settings = {"health": EVERY_SECOND, "probe": "hello"}
    models = {
        "good": scripted_model("good", Act(Prediction("yes", 1.0), 0.1), **settings),
        "slow": scripted_model("slow", Act(Prediction("yes", 1.0), 2.0), **settings),
        "late": scripted_model("late", Act(ModelError("rate_limited", "later")), **settings),
        "idle": scripted_model("idle"),
    }
    pool = run(models, 10.0)
    assert {name: pool[name].health.healthy for name in models} == {"good": True, "slow": False, "late": True, "idle": True}
    assert pool["slow"].health.why == "no answer within 0.5 s"
    backend = pool["idle"].backend
    assert isinstance(backend, Scripted)
    assert backend.calls == 0, "no interval, no checks"


def test_it_follows_the_models_of_the_next_config() -> None:
    loop = VirtualLoop()
    old, kept, new = (checked(name, lambda _: "ok") for name in ("old", "kept", "new"))

    async def main() -> None:
        prober = Prober(loop)
        prober.follow([old, kept])
        await asyncio.sleep(5.0)
        due = kept.check_due
        prober.follow([kept, new])
        count = old.health.checks
        await asyncio.sleep(0.0)
        assert kept.check_due == due, "its times do not begin again"
        await asyncio.sleep(5.0)
        assert old.health.checks == count >= 4
        assert new.health.checks >= 4
        assert kept.health.checks >= 8
        await prober.aclose()

    run_virtual(main(), loop)


class Local:
    """A model in this process that can be made to hang."""

    labels = None

    def __init__(self) -> None:
        self.free = threading.Event()
        self.free.set()
        self.threads: set[int] = set()
        self.started = 0

    def predict(self, rows: Sequence[Row]) -> Sequence[Reply]:
        self.started += 1
        self.threads.add(threading.get_ident())
        self.free.wait(10.0)
        return [Prediction("yes", 1.0) for _ in rows]

    def close(self) -> None:
        self.free.set()


def test_a_model_in_this_process_is_checked_in_its_own_threads_and_a_hanging_check_is_not_doubled() -> None:
    quick = HealthSettings(interval=Duration(0.02), timeout=Duration(0.05), unhealthy=3, healthy=2)
    backend = Local()
    model = Model("a", ModelSettings(health=quick, probe="hello", max_concurrency=2), backend, 1.0)

    async def until(met: Callable[[], bool]) -> None:
        async with asyncio.timeout(20.0):
            while not met():
                await asyncio.sleep(0.005)

    async def main() -> None:
        prober = Prober(SystemClock())
        prober.follow([model])
        await until(lambda: model.health.checks >= 3)
        assert model.health.healthy
        assert threading.get_ident() not in backend.threads
        backend.free.clear()
        await until(lambda: model.health.failed >= 5)
        assert not model.health.healthy
        hanging = backend.started
        await until(lambda: model.health.failed >= 6)
        assert backend.started == hanging
        assert model.health.why == "the last check is still running"
        backend.free.set()
        await until(lambda: model.health.healthy)
        await prober.aclose()
        await model.aclose()

    asyncio.run(main())


def test_a_failed_request_is_no_check() -> None:
    model = checked("a", lambda _: "ok")
    for _ in range(4):
        assert model.begin(0.0)
        model.ended(Failure("upstream_error"), True, 0.1, 0.1)
    assert model.health.healthy
