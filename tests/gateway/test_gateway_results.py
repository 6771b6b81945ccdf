"""L4 over HTTP: a promise, its result, the preset beside it, the cached answer, and what nobody else may see."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from gateway_wire import ask, until
from tests.results.switched import Switched, done, free_port, hurry

from rheostat.results.webhook import signature
from rheostat.testing import FaultyUpstream
from rheostat.testing import step as do

SECRET = "a secret of some length"
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


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)


@pytest.fixture
def pool(tmp_path: Path) -> Switched:
    return Switched(tmp_path, CONFIG)


def test_a_request_that_nobody_can_answer_gets_202_and_its_answer_later(pool: Switched) -> None:
    with pool.gateway() as handle:
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
        pool.up()
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
    with Switched(tmp_path, CONFIG + KEYS).gateway() as handle:
        url = ask(handle.url, body={"data": "a"}, headers=acme).json["result"]["url"]
        assert ask(handle.url, url).status == 401
        assert ask(handle.url, url, headers=other).status == 404
        assert ask(handle.url, url, headers=acme).status == 202
        for wrong in ("", "x", "../predict", "%2e%2e/status", url.rsplit("/", 1)[1].upper() + "0", "'; DROP TABLE results"):
            odd = ask(handle.url, "/v1/results/" + wrong.replace(" ", "%20"), headers=acme)
            assert odd.status == 404, wrong
        forced = ask(handle.url, body={"data": "a", "route": {"skip_route": True}}, headers=acme)
        assert forced.status >= 500


def test_an_old_result_is_gone(pool: Switched) -> None:
    with pool.gateway() as handle:
        result = ask(handle.url, body={"data": "a"}).json["result"]
        pool.up()
        assert done(handle.url, result["url"]).status == 200
        with sqlite3.connect(pool.folder / "results.sqlite", timeout=10) as database:
            database.execute("UPDATE results SET state = 'expired', reply = NULL")
        gone = ask(handle.url, result["url"])
        assert (gone.status, gone.error["type"]) == (410, "expired")


def test_a_cached_answer_says_that_it_is_one(pool: Switched) -> None:
    with pool.gateway() as handle:
        pool.up()
        route: dict[str, Any] = {"name": "cached"}
        first = ask(handle.url, body={"data": "a", "route": route}).json["data"]["route_info"]
        assert first["cached"] is False
        assert "age_s" not in first
        pool.down()
        reply = ask(handle.url, body={"data": "a", "route": route})
        info = reply.json["data"]["route_info"]
        assert reply.status == 200
        assert (info["cached"], info["fallback_level"], info["selected_model"]) == (True, 4, "large")
        assert 0.0 <= info["age_s"] < 15.0
        assert ask(handle.url, body={"data": "b", "route": route}).status >= 500


def test_preset_now_and_a_refusal_when_too_many_wait(pool: Switched) -> None:
    with pool.gateway() as handle:
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


def test_what_has_side_effects_is_never_promised(pool: Switched) -> None:
    with pool.gateway() as handle:
        row = {"data": "a", "route": {"name": "acting"}}
        uncertain = ask(handle.url, body=row)
        assert (uncertain.status, "result" in uncertain.json) == (502, False)
        reply = ask(handle.url, body=row)  # its breaker is open: nothing was sent, and still nothing is promised
        assert reply.status == 503
        assert reply.json["result"]["state"] == "refused"
        assert "side effects" in reply.json["result"]["reason"]
        assert handle.server.router.status()["results"]["refused"] == {"side_effects": 1}


def test_a_stream_that_nobody_begins_gets_202_and_its_answer_later(pool: Switched) -> None:
    with pool.gateway() as handle:
        reply = ask(handle.url, body={"data": "a", "route": {"stream": True}})
        assert (reply.status, reply.headers["content-type"]) == (202, "application/json")
        assert reply.json["result"]["state"] == "pending"
        pool.up()
        assert done(handle.url, reply.json["result"]["url"]).json["data"]["final_label"] == "yes"


def test_a_stream_of_the_preset_says_that_more_will_come(pool: Switched) -> None:
    with pool.gateway() as handle:
        reply = ask(handle.url, body={"data": "a", "route": {"name": "preset", "stream": True}})
        assert reply.status == 200
        piece, answer = [json.loads(line[6:]) for line in reply.body.splitlines() if line.startswith(b"data: ")]
        assert piece == {"text": "unknown"}
        assert answer["result"]["state"] == "pending"
        pool.up()
        assert done(handle.url, answer["result"]["url"]).json["data"]["final_label"] == "yes"


def test_a_promise_that_cannot_be_kept_says_why_and_nothing_of_the_operators(pool: Switched) -> None:
    with pool.gateway() as handle:
        result = ask(handle.url, body={"data": "too hard"}, headers={"x-request-id": "mine"}).json["result"]
        pool.up()
        reply = done(handle.url, result["url"])
        assert (reply.status, reply.error["type"], reply.json["request_id"]) == (400, "input_refused", "mine")
        assert reply.json["result"] == {**result, "state": "failed"}
        assert "retry-after" not in reply.headers
        assert b"db.internal" not in reply.body
        assert ask(handle.url, result["url"]).json == reply.json


def test_results_are_posted_to_the_operators_address_until_they_are_taken(tmp_path: Path) -> None:
    async def story() -> None:
        async with FaultyUpstream(do.Status(code=503), do.Ok()) as hook:
            webhook = f'webhook: {{url: "{hook.url}/hook", secret: "{SECRET}"}}'
            pool = Switched(tmp_path, CONFIG.replace("pending: 3", f"pending: 3, {webhook}"))
            await asyncio.to_thread(promised, pool)
            first, second = hook.calls
            assert (first.path, first.body) == ("/hook", second.body)
            assert second.headers["x-rheostat-signature"] == signature(SECRET, second.body)
            assert (second.json["state"], second.json["label"], second.json["request_id"]) == ("done", "yes", "mine")

    def promised(pool: Switched) -> None:
        with pool.gateway() as handle:
            url = ask(handle.url, body={"data": "a"}, headers={"x-request-id": "mine"}).json["result"]["url"]
            pool.up()
            assert done(handle.url, url).status == 200
            until(lambda: handle.server.router.status()["results"]["webhook"]["delivered"] == 1)

    asyncio.run(story())


def test_a_promise_outlives_a_process_that_is_killed(pool: Switched) -> None:
    pool.down()
    port = free_port()
    with pool.process(port) as url:
        reply = ask(url, body={"data": "a"}, headers={"x-request-id": "before"})
        assert reply.status == 202
        place = reply.json["result"]["url"]
    pool.up()
    with pool.process(port) as url:
        answer = done(url, place)
        assert (answer.status, answer.json["request_id"]) == (200, "before")
        assert answer.json["data"]["final_label"] == "yes"
        assert ask(url, place).json == answer.json
    with sqlite3.connect(pool.folder / "results.sqlite") as database:
        assert database.execute("SELECT state, input FROM results").fetchall() == [("done", None)]
