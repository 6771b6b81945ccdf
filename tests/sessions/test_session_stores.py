"""The three stores keep the same laws."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from rheostat.guarded import RedisSettings
from rheostat.sessions.memory import MemoryStore
from rheostat.sessions.redis import RedisStore
from rheostat.sessions.settings import SessionRedis
from rheostat.sessions.sqlite import SqliteStore
from rheostat.sessions.store import Store
from tests.cache.test_redis import SERVER, Redis
from tests.sessions.store_laws import AGE_S, StoreLaws

TOTAL = 1 << 30


class InMemory(StoreLaws):
    def make(self) -> Store:
        return MemoryStore(self.clock, AGE_S, TOTAL)


class InSqlite(StoreLaws):
    def make(self) -> Store:
        self.folder = tempfile.TemporaryDirectory()
        return SqliteStore(str(Path(self.folder.name) / "sessions.db"), self.clock, AGE_S, TOTAL)

    def teardown(self) -> None:
        super().teardown()
        self.folder.cleanup()


def test_in_memory() -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(InMemory, settings=settings(max_examples=150, stateful_step_count=40, deadline=None))


def test_in_sqlite() -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(InSqlite, settings=settings(max_examples=25, stateful_step_count=30, deadline=None))


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    pytest.importorskip("redis", reason="needs redis-py: pip install 'rheostat[redis]'")
    if SERVER is None:
        pytest.skip("needs redis-server")
    made = Redis(tmp_path_factory.mktemp("redis"))
    made.start()
    yield made
    made.stop()


def test_in_redis(redis: Redis) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    number = iter(range(1_000_000))

    class InRedis(StoreLaws):
        moves = False  # its clock is the server's

        def make(self) -> Store:
            url = f"redis://127.0.0.1:{redis.port}/0"
            prefix = f"laws-{next(number)}"
            return RedisStore(SessionRedis(url=url, prefix=prefix), self.clock, AGE_S)

    run_state_machine_as_test(InRedis, settings=settings(max_examples=25, stateful_step_count=30, deadline=None))
    assert issubclass(SessionRedis, RedisSettings)
