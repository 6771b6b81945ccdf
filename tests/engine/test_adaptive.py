"""A limit that finds itself, through the executor: it shrinks under load, grows again, and wakes who waits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from rheostat.engine.execute import Executor
from rheostat.errors import ConfigError, ModelError
from rheostat.pool import Model, ModelSettings, Reply, Row
from rheostat.resilience.breaker import BreakerSettings
from rheostat.resilience.limit import LimitSettings
from rheostat.router import Router
from rheostat.testing import VirtualLoop, run_virtual
from rheostat.types import Outcome, Prediction, Request
from rheostat.types.duration import Duration

OFF = BreakerSettings(failure_threshold=0, error_rate=1.0)


class Server:
    """Answers `cores` calls at a time in 0.1 s each; more share them, and are that much slower."""

    labels = None

    def __init__(self, cores: int) -> None:
        self.cores = cores
        self.running = self.most = 0

    async def apredict(self, rows: Sequence[Row], timeout_s: float) -> Sequence[Reply]:  # noqa: ARG002
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(0.1 * max(1.0, self.running / self.cores))
        finally:
            self.running -= 1
        return [Prediction("x", 1.0) for _ in rows]

    async def aclose(self) -> None:
        """Nothing to give back."""


class Load:
    def __init__(self, server: Any, timeout: float = 0.5, queue: int = 100, **adaptive: Any) -> None:
        self.loop = VirtualLoop()
        self.server = server
        settings = ModelSettings(adaptive=LimitSettings(**adaptive), queue=queue, timeout=Duration(timeout), breaker=OFF)
        self.model = Model("m", settings, server)
        self.executor = Executor(self.loop)

    async def one(self, name: str, left_s: float = 30.0) -> Outcome:
        now = self.loop.time()
        return await self.executor.run(self.model, Request(id=name, data="x", received=now, deadline=now + left_s), 1, 0.0)

    async def clients(self, count: int, seconds: float) -> list[Outcome]:
        """Each asks again as soon as it has its answer."""
        until, heard = self.loop.time() + seconds, []

        async def client(name: str) -> None:
            while self.loop.time() < until:
                heard.append(await self.one(name))
                await asyncio.sleep(0.001)

        await asyncio.gather(*(client(str(number)) for number in range(count)))
        return heard


def kinds(outcomes: list[Outcome]) -> set[str]:
    return {outcome.failure.kind for outcome in outcomes if outcome.failure is not None}


def test_aimd_finds_what_a_server_can_do_within_its_timeout() -> None:
    load = Load(Server(cores=2), timeout=0.5, kind="aimd")

    async def story() -> int:
        await load.clients(40, 60.0)
        return load.model.limit

    found = run_virtual(story(), load.loop)
    assert 5 <= found <= 12  # ten calls share two cores in half a second
    assert load.model.in_flight == 0
    assert len(load.model.waiting) == 0


def test_a_limit_that_grows_wakes_who_waits() -> None:
    load = Load(Server(cores=50), kind="aimd", least=1, most=20)
    load.model.adapted = load.model.adapted._replace(limit=1.0)  # type: ignore[union-attr]
    load.model.limit = 1

    async def story() -> list[Outcome]:
        return await load.clients(10, 20.0)

    heard = run_virtual(story(), load.loop)
    assert load.model.limit >= 10
    assert load.server.most == 10
    assert len(heard) > 1500  # ten at a time take a hundred seconds' work off in ten
    assert load.model.in_flight == 0


@pytest.mark.parametrize("kind", ["gradient", "aimd"])
def test_a_fault_that_is_not_of_load_leaves_the_limit_alone(kind: Literal["gradient", "aimd"]) -> None:
    class Broken(Server):
        async def apredict(self, rows: Sequence[Row], timeout_s: float) -> Sequence[Reply]:  # noqa: ARG002
            raise ModelError("upstream_error", "boom", upstream_status=self.status)

        status = 500

    load = Load(Broken(1), kind=kind)

    async def story() -> tuple[int, int]:
        for _ in range(20):
            await load.one("r")
        before = load.model.limit
        Broken.status = 503
        await load.one("r")
        return before, load.model.limit

    assert run_virtual(story(), load.loop) == (20, 18)


def test_it_is_seen() -> None:
    load = Load(Server(1), kind="gradient", least=2, most=7)
    assert load.model.limit == 7
    assert load.model.view(0.0).limit == 7
    assert load.model.status(0.0)["limit"] == 7


def test_a_model_in_this_process_is_bounded_by_its_threads_instead(tmp_path: Path) -> None:
    config = tmp_path / "rheostat.yaml"
    config.write_text("models: {a: {backend: template, label: x, adaptive: {}}}\nroutes: {default: {policy: a}}\n")
    with pytest.raises(ConfigError, match=r"models\.a\.adaptive: a model in this process has as many calls"):
        asyncio.run(Router.open(str(config)))
