"""The request path over real sockets: answers, lists, options, headers."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from gateway_wire import ask, dial, raw, read_all, until

from rheostat.gateway.handle import ServerHandle

Start = Callable[[str], ServerHandle]


def test_one_row(gateway: ServerHandle) -> None:
    reply = ask(gateway.url, body={"data": "is it?", "meta": {"risk_level": "low"}}, headers={"X-Request-Id": "my-1"})
    assert reply.status == 200
    answer = reply.json
    assert answer["code"] == 0
    assert answer["request_id"] == "my-1"
    data = answer["data"]
    assert (data["final_label"], data["final_score"], data["scores"]) == ("no", 0.75, {"yes": 0.25, "no": 0.75})
    info = data["route_info"]
    assert (info["selected_model"], info["selected_version"], info["route_type"]) == ("large", "7", "cascade")
    assert info["fast_score"] == 0.5
    assert info["weights"] == {"large": 1.0}
    assert (info["fallback"], info["fallback_level"], info["fallback_reason"]) == (False, 0, "")
    assert (info["attempts"], info["missing"], info["cost"], info["forced"]) == (2, [], 11.0, False)
    assert info["overhead_ms"] >= 0
    assert info["reason"]
    status = gateway.server.router.status()
    assert info["config_version"] == status["config_version"] != ""
    head = reply.headers
    assert head["content-type"] == "application/json"
    assert head["x-content-type-options"] == "nosniff"
    assert head["x-rheostat-request-id"] == "my-1"
    assert (head["x-rheostat-model"], head["x-rheostat-version"]) == ("large", "7")
    assert (head["x-rheostat-route-type"], head["x-rheostat-attempts"], head["x-rheostat-level"]) == ("cascade", "2", "0")
    assert head["x-rheostat-policy"] == info["policy_version"] != ""
    assert float(head["x-rheostat-overhead-ms"]) >= 0


def test_an_id_is_made_when_the_client_gives_no_sane_one(gateway: ServerHandle) -> None:
    for given in ({}, {"x-request-id": "a b"}, {"x-request-id": "x" * 65}, {"x-request-id": "<script>"}):
        made = ask(gateway.url, body={"text": "a"}, headers=given).json["request_id"]
        assert len(made) == 36
        assert made[14] == "7"


def test_a_list_answers_each_row_in_order(gateway: ServerHandle) -> None:
    rows = [{"data": "a"}, {"data": "b?"}, {"dat": "c"}, 7, {"text": "d", "meta": {"k": 1}}, {"data": None}]
    reply = ask(gateway.url, body={"items": rows}, headers={"x-request-id": "list"})
    assert reply.status == 200
    items = reply.json["items"]
    assert [item.get("code", item.get("error", {}).get("code")) for item in items] == [0, 0, 400, 400, 0, 400]
    assert [item["request_id"] for item in items] == [f"list.{n}" for n in range(6)]
    assert [item["data"]["output"] for item in items if "data" in item] == ["a", "b?", "d"]
    assert items[2]["error"]["param"] == "items[2].dat"


def test_a_slow_list_runs_beside_itself_and_keeps_its_order(start: Start) -> None:
    handle = start("")
    rows = [{"data": {"s": 0.02 * (3 - n)}} for n in range(3)]
    items = ask(handle.url, body={"items": rows, "route": {"name": "slow"}}).json["items"]
    assert [item["data"]["final_label"] for item in items] == ["slept"] * 3


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"items": []}, "empty"),
        ({"items": [{"data": "a"}] * 51}, "limit is 50"),
        ({"items": [{"data": "a"}], "data": "b"}, "belong into each item"),
        ({"items": {"data": "a"}}, "expected array"),
    ],
)
def test_a_wrong_list_is_refused_whole(gateway: ServerHandle, body: object, said: str) -> None:
    reply = ask(gateway.url, body=body)
    assert reply.status == 400
    assert said in reply.error["message"]


def test_errors_have_one_shape(gateway: ServerHandle) -> None:
    cases = [
        (ask(gateway.url, body=b"{"), 400, "invalid_request"),
        (ask(gateway.url, body={"data": "a", "route": {"name": "nowhere"}}), 404, "not_found"),
        (ask(gateway.url, body=b"a=b", headers={"content-type": "application/x-www-form-urlencoded"}), 415,
         "unsupported_media_type"),
        (ask(gateway.url, body=b"x", headers={"content-encoding": "gzip"}), 415, "unsupported_media_type"),
        (ask(gateway.url, body={"data": "a" * 20_000}), 413, "too_large"),
        (ask(gateway.url, "/v1/nothing"), 404, "not_found"),
        (ask(gateway.url, "/v1/predict"), 405, "method_not_allowed"),
        (ask(gateway.url, body={"data": "a", "route": {"force_model": "large"}}), 403, "forbidden"),
    ]  # fmt: skip
    for reply, status, kind in cases:
        assert reply.status == status
        assert reply.headers["content-type"] == "application/json"
        assert set(reply.json) == {"error", "request_id"}
        assert reply.json["request_id"] == reply.headers["x-rheostat-request-id"] != ""
        assert set(reply.error) == {"message", "type", "param", "code"}
        assert (reply.error["type"], reply.error["code"]) == (kind, status)
    assert "POST /v1/predict" in ask(gateway.url, "/predict").error["message"]
    assert ask(gateway.url, body={"data": "a"}).status == 200


def test_content_types_that_are_json(gateway: ServerHandle) -> None:
    for kind in ("application/json", "application/json; charset=utf-8", "Application/JSON;charset=UTF-8", ""):
        assert ask(gateway.url, body=b'{"data": "a"}', headers={"content-type": kind}).status == 200
    for kind in ("text/plain", "application/json; charset=latin-1", "multipart/form-data; boundary=x"):
        assert ask(gateway.url, body=b'{"data": "a"}', headers={"content-type": kind}).status == 415


def test_a_body_without_a_type_is_json(gateway: ServerHandle) -> None:
    request = b'POST /v1/predict HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 13\r\n\r\n{"data": "a"}'
    assert raw(gateway.url, request).startswith(b"HTTP/1.1 200 OK\r\n")


def test_the_limit_of_a_body(gateway: ServerHandle) -> None:
    whole = json.dumps({"data": ""}).encode()
    exact = json.dumps({"data": "a" * (20_000 - len(whole))}).encode()
    assert len(exact) == 20_000
    assert ask(gateway.url, body=exact).status == 200
    reply = ask(gateway.url, body=exact + b" ")
    assert reply.status == 413
    assert "20000 bytes" in reply.error["message"]


def test_an_endless_chunked_body_is_refused_at_the_limit(gateway: ServerHandle) -> None:
    with dial(gateway.url) as connection:
        connection.sendall(b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(5):
            connection.sendall(b"1388\r\n" + b"a" * 5000 + b"\r\n")
        assert b" 413 " in connection.recv(65_536).split(b"\r\n")[0]


def test_a_refused_body_that_never_ends_is_cut(gateway: ServerHandle) -> None:
    chunk = b"fa000\r\n" + b"a" * 0xFA000 + b"\r\n"
    sent = 0
    with dial(gateway.url) as connection, contextlib.suppress(BrokenPipeError, ConnectionResetError):
        connection.sendall(b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        while sent < 100:
            connection.sendall(chunk)
            sent += 1
    assert sent < 50
    assert ask(gateway.url, body={"data": "a"}).status == 200


HARD = [
    "\U0001f468\u200d\U0001f469\u200d\U0001f467", "NUL \x00 inside", "", "\u202e right to left \u202c",
    "line\r\n2026-01-01 ERROR faked\r\n", "\x1b[31mred\x1b[0m", "模型" * 1000, '"quotes" \\ and \\u0000',
]  # fmt: skip


def test_hard_texts_are_served_like_any_other(gateway: ServerHandle) -> None:
    for text in HARD:
        reply = ask(gateway.url, body={"data": text})
        assert reply.status == 200
        assert reply.json["data"]["output"] == text
    reply = ask(gateway.url, body=b'{"data": "half \\ud800 pair"}')
    assert reply.status == 200
    assert reply.json["data"]["output"] == "half � pair"


def test_whatever_a_model_says_can_be_sent(gateway: ServerHandle) -> None:
    for text, output in (("half", "half � and \x00"), ("huge", 10**40)):
        reply = ask(gateway.url, body={"data": text, "route": {"name": "odd"}})
        assert reply.status == 200
        assert reply.json["data"]["output"] == output
    assert ask(gateway.url, body={"data": "deep", "route": {"name": "odd"}}).status == 200


def test_an_output_without_an_end_is_left_out(gateway: ServerHandle) -> None:
    rows = {"items": [{"data": "endless"}, {"data": "half"}], "route": {"name": "odd"}}
    first, second = ask(gateway.url, body=rows).json["items"]
    assert first["data"]["output"] == "(nested too deep to be shown)"
    assert second["data"]["output"] == "half \ufffd and \x00"
    assert ask(gateway.url, body={"data": "endless", "route": {"name": "odd"}}).json["data"]["final_label"] == "yes"


def test_a_model_that_exits_ends_its_own_call_only(gateway: ServerHandle) -> None:
    reply = ask(gateway.url, body={"data": "exits", "route": {"name": "odd"}})
    assert (reply.status, reply.error["type"]) == (502, "no_answer")
    rows = {"items": [{"data": "exits"}, {"data": "fine"}], "route": {"name": "odd"}}
    first, second = ask(gateway.url, body=rows).json["items"]
    assert (first["error"]["code"], second["data"]["final_label"]) == (502, "yes")


def test_a_request_without_an_answer_is_no_fault_of_the_gateway(
    gateway: ServerHandle, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("ERROR"):
        assert ask(gateway.url, body={"data": "secret", "route": {"name": "odd"}}).status == 502
    assert caplog.text == ""


def test_a_models_failure_shows_no_inside(gateway: ServerHandle) -> None:
    reply = ask(gateway.url, body={"data": "secret", "route": {"name": "odd"}})
    assert reply.status == 502
    assert reply.error["type"] == "no_answer"
    for inside in (b"db.internal", b"hunter2", b"Traceback", b"RuntimeError", b".py"):
        assert inside not in reply.body


def test_the_session_header_in_every_spelling(gateway: ServerHandle) -> None:
    ruled = {"data": "a", "route": {"name": "ruled"}}
    for name in ("x-rheostat-session", "X-Rheostat-Session", "X-RHEOSTAT-SESSION"):
        assert ask(gateway.url, body=ruled, headers={name: "s1"}).headers["x-rheostat-model"] == "large"
    assert ask(gateway.url, body=ruled, headers={"x-rheostat-session": "s2"}).headers["x-rheostat-model"] == "fast"
    assert ask(gateway.url, body={**ruled, "meta": {"session": "s1"}}).headers["x-rheostat-model"] == "large"


def test_the_session_header_given_twice(gateway: ServerHandle) -> None:
    body = b'{"data": "a", "route": {"name": "ruled"}}'
    head = b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n" % len(body)
    same = raw(gateway.url, head + b"X-Rheostat-Session: s1\r\nx-rheostat-session: s1\r\n\r\n" + body)
    assert b"x-rheostat-model: large" in same
    different = raw(gateway.url, head + b"X-Rheostat-Session: s1\r\nx-rheostat-session: s2\r\n\r\n" + body)
    assert different.startswith(b"HTTP/1.1 400 ")
    assert b"given twice" in different


def test_a_session_is_a_short_name(gateway: ServerHandle) -> None:
    assert ask(gateway.url, body={"data": "a"}, headers={"x-rheostat-session": "s" * 257}).status == 400
    for wrong in ([], {}, True, 1.5):
        assert ask(gateway.url, body={"data": "a", "meta": {"session": wrong}}).error["param"] == "meta.session"
    assert ask(gateway.url, body={"data": "a", "meta": {"session": 12}}).status == 200


def test_rules_read_headers_but_not_decisions_from_outside(gateway: ServerHandle) -> None:
    ruled = {"data": "a", "route": {"name": "ruled"}}
    assert ask(gateway.url, body=ruled, headers={"X-Tier": "gold"}).headers["x-rheostat-model"] == "large"
    forged = {"x-rheostat-model": "large", "X-Rheostat-Route-Type": "forced", "X-Force-Model": "large"}
    reply = ask(gateway.url, body=ruled, headers=forged)
    assert reply.headers["x-rheostat-model"] == "fast"
    assert reply.headers["x-rheostat-route-type"] != "forced"


def test_the_trace_of_a_request_is_kept_with_its_record(gateway: ServerHandle) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    made = [
        ask(gateway.url, body={"data": "a"}, headers={"traceparent": given}).json["request_id"] for given in (trace, "no")
    ]
    found = [gateway.server.router.record(request_id).meta for request_id in made]
    assert found == [{"traceparent": trace}, {}]


def test_a_client_may_shorten_its_time(start: Start) -> None:
    handle = start("")
    slow = {"data": {"s": 5}, "route": {"name": "slow"}}
    by_header = ask(handle.url, body=slow, headers={"x-rheostat-timeout-ms": "50"})
    by_option = ask(handle.url, body={**slow, "route": {"name": "slow", "timeout_ms": 50}})
    for reply in (by_header, by_option):
        assert reply.status == 504
    for wrong in ("0", "-5", "nan", "inf", "soon", ""):
        assert ask(handle.url, body=slow, headers={"x-rheostat-timeout-ms": wrong}).status == 400
    quick = ask(handle.url, body={"data": {}, "route": {"name": "slow"}})
    assert quick.status == 200


def test_clients_cannot_choose_where_to_call(gateway: ServerHandle) -> None:
    for name in ("api_base", "base_url", "url", "endpoint", "host"):
        assert ask(gateway.url, body={"data": "a", name: "http://169.254.169.254/"}).status == 400
        assert ask(gateway.url, body={"data": "a", "route": {name: "http://127.0.0.1/"}}).status == 400


def test_no_request_is_lost_or_swapped_between_many_clients(gateway: ServerHandle) -> None:
    wrong: list[str] = []

    def client(number: int) -> None:
        with dial(gateway.url) as connection:
            for turn in range(40):
                text = f"{number}-{turn}" + "?" * (turn % 2)
                body = json.dumps({"data": text}).encode()
                head = f"POST /v1/predict HTTP/1.1\r\nHost: x\r\nX-Request-Id: {number}.{turn}\r\n"
                connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
                got = connection.recv(65_536)
                answer = json.loads(got.split(b"\r\n\r\n", 1)[1])
                if answer["data"]["output"] != text or answer["request_id"] != f"{number}.{turn}":
                    wrong.append(text)

    clients = [threading.Thread(target=client, args=(number,)) for number in range(8)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    assert wrong == []


def test_pipelined_requests_are_answered_in_order(gateway: ServerHandle) -> None:
    requests = b""
    for number in range(5):
        body = b'{"data": "%d"}' % number
        last = b"Connection: close\r\n" if number == 4 else b""
        requests += b"POST /v1/predict HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n%s" % (last, len(body), body)
    got = raw(gateway.url, requests)
    places = [got.index(b'"output":"%d"' % number) for number in range(5)]
    assert places == sorted(places)


def test_a_client_that_leaves_stops_the_work_and_frees_the_place(start: Start, tmp_path: Path) -> None:
    handle = start("")
    log = tmp_path / "log"
    body = json.dumps({"data": {"s": 20, "log": str(log)}, "route": {"name": "slow"}}).encode()
    with dial(handle.url) as connection:
        connection.sendall(b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        until(lambda: handle.server.gateway.active == 1)
    reply = ask(handle.url, body={"data": {"s": 0}, "route": {"name": "slow"}})
    assert reply.status == 200
    assert log.read_text() == "cancelled"
    status = handle.server.router.status()
    assert status["models"]["sleepy"]["in_flight"] == 0
    assert status["models"]["sleepy"]["breaker"] == "closed"
    assert handle.server.gateway.active == 0


def test_no_ending_keeps_a_place(start: Start) -> None:
    handle = start("")
    slow = {"name": "slow"}
    for bad in (b"{", json.dumps({"data": {"s": "never"}, "route": slow}).encode(),
                json.dumps({"data": {"s": 5}, "route": {**slow, "timeout_ms": 30}}).encode(),
                json.dumps({"data": "a", "route": {"name": "none"}}).encode()):  # fmt: skip
        assert ask(handle.url, body=bad).status >= 400
        assert ask(handle.url, body={"data": {"s": 0}, "route": slow}).status == 200
    assert handle.server.router.status()["models"]["sleepy"]["in_flight"] == 0
    assert handle.server.router.engine.in_flight == 0


def test_a_list_whose_client_leaves_is_stopped(start: Start, tmp_path: Path) -> None:
    handle = start("")
    log = tmp_path / "log"
    rows = [{"data": {"s": 20, "log": str(log)}} for _ in range(3)]
    body = json.dumps({"items": rows, "route": {"name": "slow"}}).encode()
    with dial(handle.url) as connection:
        connection.sendall(b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        until(lambda: handle.server.router.status()["models"]["sleepy"]["queued"] == 2)
    assert ask(handle.url, body={"data": {"s": 0}, "route": {"name": "slow"}}).status == 200
    assert log.read_text() == "cancelled"
    assert handle.server.router.status()["models"]["sleepy"]["queued"] == 0


def test_keep_alive_outlasts_many_requests(gateway: ServerHandle) -> None:
    with dial(gateway.url) as connection:
        for _ in range(20):
            connection.sendall(b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n")
            assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")
        connection.sendall(b"GET /health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert read_all(connection).endswith(b'{"status":"live"}')
