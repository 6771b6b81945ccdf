"""Answers shared between gateways through a real Redis that is started, stopped, frozen and started again."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rheostat.router import Router
from tests.cache.test_route_cache import _written
from tests.results.switched import free_port

pytest.importorskip("redis", reason="needs redis-py: pip install 'rheostat[redis]'")
SERVER = shutil.which("redis-server")
pytestmark = pytest.mark.skipif(SERVER is None, reason="needs redis-server")


class Redis:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        assert SERVER is not None
        words = ["--port", str(self.port), "--save", "", "--appendonly", "no", "--dir", str(self.folder)]
        self.running = subprocess.Popen([SERVER, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        from redis import Redis as Client

        client = Client(port=self.port)
        until = time.monotonic() + 10.0
        while time.monotonic() < until:
            try:
                client.ping()
                break
            except Exception:
                time.sleep(0.02)
        client.close()

    def stop(self) -> None:
        if self.running is not None:
            os.kill(self.running.pid, signal.SIGCONT)
            self.running.kill()
            self.running.wait()
            self.running = None

    def freeze(self) -> None:
        assert self.running is not None
        os.kill(self.running.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        assert self.running is not None
        os.kill(self.running.pid, signal.SIGCONT)


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    made = Redis(tmp_path)
    yield made
    made.stop()


def _config(folder: Path, redis: Redis) -> str:
    more = f"cache: {{redis: {{url: 'redis://127.0.0.1:{redis.port}/0', timeout: 50ms}}}}"
    return str(_written(folder, more=more))


async def _word(router: Router, text: str) -> str:
    served = await router.apredict(text)
    return served.record.cache


def test_one_gateway_gives_what_another_has_kept_with_its_age(tmp_path: Path, redis: Redis) -> None:
    async def run() -> None:
        redis.start()
        one, two = [await Router.open(_config(tmp_path, redis)) for _ in range(2)]
        assert await _word(one, "q") == "miss"
        await asyncio.sleep(0.3)
        served = await two.apredict("q")
        assert (served.record.cache, served.record.selected_model) == ("hit", "a")
        assert served.record.age_s is not None
        assert 0.2 < served.record.age_s < 5.0
        assert one.status()["cache"]["shared"]["state"] == "ok"
        await one.aclose()
        await two.aclose()

    asyncio.run(run())


def test_a_gateway_starts_and_serves_without_its_store_and_uses_it_once_it_is_there(tmp_path: Path, redis: Redis) -> None:
    async def run() -> None:
        router = await Router.open(_config(tmp_path, redis))
        for number in range(4):
            assert await _word(router, f"q{number}") == "miss"
            assert await _word(router, f"q{number}") == "hit"  # from its own memory
        assert router.status()["cache"]["shared"]["state"] == "degraded"
        assert "rheostat_cache_shared_up 0" in router.metrics.render().decode()
        redis.start()
        async with asyncio.timeout(20.0):
            while router.status()["cache"]["shared"]["state"] != "ok":
                await _word(router, f"later {time.monotonic()}")
        await router.aclose()

    asyncio.run(run())


def test_a_frozen_store_holds_up_only_the_first_few(tmp_path: Path, redis: Redis) -> None:
    async def run() -> None:
        redis.start()
        router = await Router.open(_config(tmp_path, redis))
        assert await _word(router, "before") == "miss"
        redis.freeze()
        took = []
        for number in range(20):
            record = (await router.apredict(f"q{number}")).record
            took.append(record.elapsed_s - sum(outcome.elapsed_s for outcome in record.outcomes))
        assert router.status()["cache"]["shared"]["state"] == "degraded"
        assert sum(each > 0.04 for each in took) <= 3  # the store's breaker opens after three
        redis.thaw()
        async with asyncio.timeout(20.0):
            while router.status()["cache"]["shared"]["state"] != "ok":
                await _word(router, f"later {time.monotonic()}")
        await router.aclose()

    asyncio.run(run())


def test_what_is_damaged_is_a_miss(tmp_path: Path, redis: Redis) -> None:
    async def run() -> None:
        from redis import Redis as Client

        redis.start()
        router = await Router.open(_config(tmp_path, redis))
        assert await _word(router, "q") == "miss"
        await asyncio.sleep(0.1)
        client = Client(port=redis.port)
        (key,) = client.keys("rheostat:answer:*")
        assert 0 < client.pttl(key) <= 60_000
        router.caching.answers._kept.clear()
        for odd in (b"", b"\xff\xff", b"\x94\xc4\x01x\xcb", b"null"):
            client.set(key, odd)
            assert await _word(router, "q") == "miss"
            router.caching.answers._kept.clear()
            await asyncio.sleep(0.1)
        client.close()
        await router.aclose()

    asyncio.run(run())
