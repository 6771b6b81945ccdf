"""A model dies in mid-conversation, and its gateway with it: the next turn, by another model elsewhere, knows all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from rheostat.sessions.store import LEASE_S
from tests.cache.test_redis import SERVER, Redis
from tests.chat.chat_servers import Chats, ask, completion, hello, model
from tests.results.switched import free_port

S = {"x-rheostat-session": "s"}


@contextmanager
def process(folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A gateway in a process of its own."""
    port = free_port()
    command = [sys.executable, "-m", "rheostat", "serve", str(folder / "rheostat.yaml"), "--port", str(port)]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 20.0
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health/live", timeout=1).read()
                break
            except OSError:
                assert time.monotonic() < until, "the gateway does not start"
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}", running
    finally:
        running.kill()
        running.wait()


@pytest.fixture
def servers() -> Iterator[tuple[Chats, Chats]]:
    pair = Chats(), Chats()
    yield pair
    for server in pair:
        server.close()


def written(folder: Path, servers: tuple[Chats, Chats], sessions: str) -> None:
    a, b = servers
    (folder / "rheostat.yaml").write_text(
        f"task: chat\nmodels: {{a: {model(a, 'peers: [b]')}, b: {model(b)}}}\n"
        f"routes: {{default: {{policy: a, session: {{}}, fallback: {{retry: 0}}}}}}\nsessions: {sessions}\n"
    )


@pytest.fixture(params=["sqlite", "redis"])
def sessions(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield "{store: sqlite, path: sessions.db}"
        return
    pytest.importorskip("redis", reason="needs redis-py: pip install 'rheostat[redis]'")
    if SERVER is None:
        pytest.skip("needs redis-server")
    made = Redis(tmp_path)
    made.start()
    yield f"{{store: redis, redis: {{url: 'redis://127.0.0.1:{made.port}/0'}}}}"
    made.stop()


def test_a_model_and_its_gateway_die_and_the_next_turn_knows_the_context(
    servers: tuple[Chats, Chats], sessions: str, tmp_path: Path
) -> None:
    a, b = servers
    written(tmp_path, servers, sessions)
    asked, go = threading.Event(), threading.Event()

    def dies(body: object) -> bytes:
        if "die" in str(body):
            asked.set()
            go.wait(20)
        return completion("I will remember 4711")

    a.answer = dies
    b.answer = lambda body: completion(" | ".join(str(message["content"]) for message in body["messages"]))
    with process(tmp_path) as (one, first), process(tmp_path) as (two, _):
        assert ask(one, hello("the number is 4711"), S).headers["x-rheostat-model"] == "a"
        with ThreadPoolExecutor() as pool:
            broken = pool.submit(ask, one, hello("die now"), S)
            assert asked.wait(10)
            first.kill()  # in the middle of a turn, which it holds the session for
            a.close()  # and the model with it
            go.set()
            assert broken.exception(10) is not None
        until = time.monotonic() + 3 * LEASE_S
        while (said := ask(two, hello("which number?"), S)).status == 409:
            assert time.monotonic() < until
            time.sleep(0.25)
        assert said.headers["x-rheostat-model"] == "b"
        assert said.json["choices"][0]["message"]["content"] == "the number is 4711 | I will remember 4711 | which number?"
        assert ask(two, hello("and?"), S).headers["x-rheostat-history"] == "2"


def test_two_processes_at_once_give_every_turn_one_place(
    servers: tuple[Chats, Chats], sessions: str, tmp_path: Path
) -> None:
    a, _ = servers
    written(tmp_path, servers, sessions)
    a.answer = lambda body: completion(f"heard {len(body['messages'])}")
    with process(tmp_path) as (one, _), process(tmp_path) as (two, _):

        def turn(number: int) -> int:
            refused = 0
            while (said := ask((one, two)[number % 2], hello(f"turn {number}"), S)).status == 409:
                refused += 1
                time.sleep(0.01)
            assert said.status == 200, said.body
            return refused

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(turn, range(24)))
        ask(one, hello("end"), S)
    told = [message["content"] for message in json.loads(a.asked[-1])["messages"]]
    assert sorted(told[:-1:2]) == sorted(f"turn {number}" for number in range(24))
    assert told[1::2] == [f"heard {2 * number + 1}" for number in range(24)]


def frozen(redis: Redis) -> Callable[[], None]:
    redis.freeze()
    return redis.thaw


def killed(redis: Redis) -> Callable[[], None]:
    redis.stop()
    return redis.start


@pytest.mark.parametrize("harm", [frozen, killed])
def test_without_redis_a_turn_is_refused_and_a_whole_conversation_is_answered(
    servers: tuple[Chats, Chats], tmp_path: Path, harm: Callable[[Redis], Callable[[], None]]
) -> None:
    pytest.importorskip("redis", reason="needs redis-py: pip install 'rheostat[redis]'")
    if SERVER is None:
        pytest.skip("needs redis-server")
    redis = Redis(tmp_path)
    redis.start()
    try:
        store = f"{{store: redis, redis: {{url: 'redis://127.0.0.1:{redis.port}/0', timeout: 100ms}}}}"
        written(tmp_path, servers, store)
        with process(tmp_path) as (url, _):
            assert ask(url, hello("one"), S).status == 200
            mend = harm(redis)
            for _ in range(4):
                refused = ask(url, hello("two"), S)
                assert (refused.status, refused.json["error"]["code"]) == (503, "sessions_unavailable")
                assert int(refused.headers["retry-after"]) >= 1
            assert ask(url, hello("without a session")).status == 200
            whole = [
                {"role": "user", "content": "one"},
                {"role": "assistant", "content": "1"},
                {"role": "user", "content": "x"},
            ]
            assert ask(url, {"model": "default", "messages": whole}, S).status == 200
            mend()
            until = time.monotonic() + 30.0
            while (said := ask(url, hello("three"), S)).status in (503, 409):
                assert time.monotonic() < until
                time.sleep(0.1)
            # A Redis that was frozen has kept the conversation, one that was killed has not, and the answer says so.
            assert said.headers["x-rheostat-history"] == ("1" if harm is frozen else "0")
    finally:
        redis.stop()


def test_a_file_that_cannot_be_written_refuses_turns_until_it_can(servers: tuple[Chats, Chats], tmp_path: Path) -> None:
    a, _ = servers
    folder = tmp_path / "store"
    folder.mkdir()
    written(tmp_path, servers, "{store: sqlite, path: store/sessions.db}")
    with process(tmp_path) as (url, _):
        assert ask(url, hello("one"), S).status == 200
        (folder / "sessions.db").rename(folder / "away.db")
        for name in ("sessions.db-wal", "sessions.db-shm"):
            (folder / name).unlink(missing_ok=True)
        (folder / "sessions.db").mkdir()  # what root cannot open either
        refused = ask(url, hello("two"), S)
        assert (refused.status, refused.json["error"]["code"]) == (503, "sessions_unavailable")
        assert len(a.asked) == 1  # nobody was asked in vain
        (folder / "sessions.db").rmdir()
        until = time.monotonic() + 30.0
        while (said := ask(url, hello("three"), S)).status == 503:
            assert time.monotonic() < until
            time.sleep(0.1)
        assert said.status == 200
    assert os.path.exists(folder / "sessions.db")
