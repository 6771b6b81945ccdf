"""L4 over HTTP: a promise, its result, the preset beside it, the cached answer, and what nobody else may see."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gateway_wire import Reply, ask, until

from rheostat.gateway.handle import ServerHandle

MODELS = """
from pathlib import Path

DOWN = Path(__file__).with_name("down")

def large(row):
    if DOWN.exists():
        raise RuntimeError("out of order")
    return "yes", 0.9
"""
CONFIG = """
models:
  large: &large {callable: "MODULE:large", backend: python, each: true, version: "3", run: inline,
                 breaker: {failureThreshold: 0}}
  acting: {callable: "MODULE:large", backend: python, each: true, run: inline, side_effects: true,
           breaker: {failureThreshold: 1}}
routes:
  default: {policy: large, models: [large], fallback: {lighter: false, later: true}}
  cached: {policy: large, models: [large], fallback: {lighter: false, cached: true}}
  preset: {policy: large, models: [large], fallback: {lighter: false, later: true, preset: {label: unknown}}}
  acting: {policy: acting, models: [acting], fallback: {lighter: false, later: true}}
results: {path: results.sqlite, pending: 3}
"""
KEYS = """
keys:
  - {key: "key-of-acme-1234567", tenant: acme, may_force: true}
  - {key: "key-of-other-123456", tenant: other}
"""


def write(folder: Path, more: str = "") -> str:
    module = f"l4_http_{folder.name}"
    (folder / f"{module}.py").write_text(MODELS)
    path = folder / "rheostat.yaml"
    path.write_text(CONFIG.replace("MODULE", module) + more)
    return str(path)


@contextmanager
def gateway(folder: Path, more: str = "") -> Iterator[ServerHandle]:
    with ServerHandle(write(folder, more)) as handle:
        (folder / "down").touch()
        yield handle


def done(url: str, path: str, headers: dict[str, str] | None = None) -> Reply:
    found: list[Reply] = []

    def is_over() -> bool:
        found.append(ask(url, path, headers=headers))
        time.sleep(0.05)
        return found[-1].status != 202

    until(is_over)
    return found[-1]


def test_a_request_that_nobody_can_answer_gets_202_and_its_answer_later(tmp_path: Path) -> None:
    with gateway(tmp_path) as handle:
        reply = ask(handle.url, body={"data": "is it?"}, headers={"x-request-id": "my-1"})
        assert reply.status == 202
        result = reply.json["result"]
        assert reply.json == {"code": 0, "request_id": "my-1", "data": None, "result": result}
        assert result == {"id": result["id"], "url": f"/v1/results/{result['id']}", "state": "pending"}
        assert reply.headers["location"] == result["url"]
        assert int(reply.headers["retry-after"]) >= 1
        waiting = ask(handle.url, result["url"])
        assert (waiting.status, waiting.json) == (202, reply.json)
        assert int(waiting.headers["retry-after"]) >= 1
        assert ask(handle.url, result["url"], body={}).status == 405
        (tmp_path / "down").unlink()
        answer = done(handle.url, result["url"])
        assert answer.status == 200
        assert answer.json["request_id"] == "my-1"
        assert answer.json["result"] == {**result, "state": "done"}
        data = answer.json["data"]
        assert (data["final_label"], data["final_score"]) == ("yes", 0.9)
        assert (data["route_info"]["selected_model"], data["route_info"]["fallback_level"]) == ("large", 0)
        assert answer.headers["x-rheostat-model"] == "large"


def test_only_the_one_who_was_promised_sees_a_result(tmp_path: Path) -> None:
    acme, other = {"x-api-key": "key-of-acme-1234567"}, {"x-api-key": "key-of-other-123456"}
    with gateway(tmp_path, KEYS) as handle:
        url = ask(handle.url, body={"data": "a"}, headers=acme).json["result"]["url"]
        assert ask(handle.url, url).status == 401
        assert ask(handle.url, url, headers=other).status == 404
        assert ask(handle.url, url, headers=acme).status == 202
        for wrong in ("", "x", "../predict", "%2e%2e/status", url.rsplit("/", 1)[1].upper() + "0", "'; DROP TABLE results"):
            odd = ask(handle.url, "/v1/results/" + wrong.replace(" ", "%20"), headers=acme)
            assert odd.status == 404, wrong
        forced = ask(handle.url, body={"data": "a", "route": {"skip_route": True}}, headers=acme)
        assert forced.status >= 500


def test_an_old_result_is_gone(tmp_path: Path) -> None:
    with gateway(tmp_path) as handle:
        result = ask(handle.url, body={"data": "a"}).json["result"]
        (tmp_path / "down").unlink()
        assert done(handle.url, result["url"]).status == 200
        with sqlite3.connect(tmp_path / "results.sqlite", timeout=10) as database:
            database.execute("UPDATE results SET state = 'expired', reply = NULL")
        gone = ask(handle.url, result["url"])
        assert (gone.status, gone.error["type"]) == (410, "expired")


def test_a_cached_answer_says_that_it_is_one(tmp_path: Path) -> None:
    with gateway(tmp_path) as handle:
        (tmp_path / "down").unlink()
        route: dict[str, Any] = {"name": "cached"}
        first = ask(handle.url, body={"data": "a", "route": route}).json["data"]["route_info"]
        assert first["cached"] is False
        assert "age_s" not in first
        (tmp_path / "down").touch()
        reply = ask(handle.url, body={"data": "a", "route": route})
        info = reply.json["data"]["route_info"]
        assert reply.status == 200
        assert (info["cached"], info["fallback_level"], info["selected_model"]) == (True, 4, "large")
        assert 0.0 <= info["age_s"] < 15.0
        assert ask(handle.url, body={"data": "b", "route": route}).status >= 500


def test_preset_now_and_a_refusal_when_too_many_wait(tmp_path: Path) -> None:
    with gateway(tmp_path) as handle:
        reply = ask(handle.url, body={"data": "a", "route": {"name": "preset"}})
        assert (reply.status, reply.json["data"]["final_label"]) == (200, "unknown")
        assert reply.json["result"]["state"] == "pending"
        rows = ask(handle.url, body={"items": [{"data": str(n)} for n in range(3)]}).json["items"]
        states = [row["result"]["state"] for row in rows]
        assert sorted(states) == ["pending", "pending", "refused"]
        refused = ask(handle.url, body={"data": "z"})
        assert refused.status >= 500
        assert refused.json["result"]["state"] == "refused"
        assert "too many" in refused.json["result"]["reason"]


def test_what_has_side_effects_is_never_promised(tmp_path: Path) -> None:
    with gateway(tmp_path) as handle:
        row = {"data": "a", "route": {"name": "acting"}}
        uncertain = ask(handle.url, body=row)
        assert (uncertain.status, "result" in uncertain.json) == (502, False)
        reply = ask(handle.url, body=row)  # its breaker is open: nothing was sent, and still nothing is promised
        assert reply.status == 503
        assert reply.json["result"]["state"] == "refused"
        assert "side effects" in reply.json["result"]["reason"]
        assert handle.server.router.status()["results"]["refused"] == {"side_effects": 1}


@contextmanager
def process(folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """`rheostat serve` in a process of its own, ready; it is killed at the end."""
    with (folder / "log").open("ab") as log:
        command = [sys.executable, "-m", "rheostat", "serve", str(folder / "rheostat.yaml"), "--port", str(port)]
        running = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env={**os.environ})
    try:
        until(lambda: is_ready(f"http://127.0.0.1:{port}"), 60.0)
        yield running
    finally:
        running.send_signal(signal.SIGKILL)
        running.wait()


def is_ready(url: str) -> bool:
    try:
        return ask(url, "/health/ready").status == 200
    except OSError:
        time.sleep(0.05)
        return False


def test_a_promise_outlives_a_process_that_is_killed(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "down").touch()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with process(tmp_path, port):
        reply = ask(url, body={"data": "a"}, headers={"x-request-id": "before"})
        assert reply.status == 202
        place = reply.json["result"]["url"]
    (tmp_path / "down").unlink()
    with process(tmp_path, port):
        answer = done(url, place)
        assert (answer.status, answer.json["request_id"]) == (200, "before")
        assert answer.json["data"]["final_label"] == "yes"
        assert ask(url, place).json == answer.json
    with sqlite3.connect(tmp_path / "results.sqlite") as database:
        assert database.execute("SELECT state, input FROM results").fetchall() == [("done", None)]
