"""Priorities and tenants over HTTP: 503 and 429 with a Retry-After, for single rows, lists and streams alike."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from gateway_wire import Reply, ask

from rheostat.gateway.handle import ServerHandle

Start = Callable[[str], ServerHandle]
KEYS = """
keys:
  - {key: "key-of-the-shop-0000001", tenant: shop, max_in_flight: 1}
  - {key: "key-of-the-shop-0000002", tenant: shop, max_in_flight: 1, priority: low}
  - {key: "key-of-the-lab-00000003", tenant: lab, priority: high}
server: {max_in_flight: 2}
"""
SHOP, SLOW_SHOP, LAB = "key-of-the-shop-0000001", "key-of-the-shop-0000002", "key-of-the-lab-00000003"


def row(seconds: float, **more: Any) -> dict[str, Any]:
    return {"data": {"s": seconds}, "route": {"name": "slow", **more}}


def later(handle: ServerHandle, body: Any, **headers: str) -> tuple[threading.Thread, list[Reply]]:
    """Send it in the background, and return when the gateway has it."""
    answers: list[Reply] = []
    before = handle.server.router.engine.in_flight
    thread = threading.Thread(target=lambda: answers.append(ask(handle.url, body=body, headers=headers)))
    thread.start()
    until = time.monotonic() + 5.0
    while handle.server.router.engine.in_flight == before and time.monotonic() < until:
        time.sleep(0.005)
    return thread, answers


@pytest.fixture
def busy(start: Start) -> ServerHandle:
    return start(KEYS)


def test_a_tenant_has_its_own_limit(busy: ServerHandle) -> None:
    thread, answers = later(busy, row(0.6), **{"x-api-key": SHOP})
    for key in (SHOP, SLOW_SHOP):
        reply = ask(busy.url, body={"data": "a"}, headers={"x-api-key": key})
        assert reply.status == 429
        assert reply.error["type"] == "too_many_requests"
        assert int(reply.headers["retry-after"]) >= 1
        streamed = ask(busy.url, body=row(0.0, stream=True), headers={"x-api-key": key})
        assert (streamed.status, streamed.error["type"]) == (429, "too_many_requests")
    rows = ask(busy.url, body={"items": [{"data": "a"}, {"data": "b"}]}, headers={"x-api-key": SHOP})
    assert rows.status == 200
    assert [each["error"]["code"] for each in rows.json["items"]] == [429, 429]
    assert ask(busy.url, body={"data": "a"}, headers={"x-api-key": LAB}).status == 200
    thread.join()
    assert answers[0].status == 200
    assert ask(busy.url, body={"data": "a"}, headers={"x-api-key": SHOP}).status == 200


def test_a_list_of_a_limited_tenant_is_served_within_its_limit(busy: ServerHandle) -> None:
    body = {"items": [{"data": {"s": 0.01}}] * 5, "route": {"name": "slow"}}
    reply = ask(busy.url, body=body, headers={"x-api-key": SHOP})
    assert [each["code"] for each in reply.json["items"]] == [0] * 5


def test_the_header_only_lowers(busy: ServerHandle) -> None:
    threads = [later(busy, row(0.5), **{"x-api-key": LAB})[0] for _ in range(2)]
    for asked, status in (("low", 503), ("normal", 503), ("high", 200)):
        reply = ask(busy.url, body={"data": "a"}, headers={"x-api-key": LAB, "x-rheostat-priority": asked})
        assert reply.status == status
        assert status == 200 or int(reply.headers["retry-after"]) >= 1
    raised = ask(busy.url, body={"data": "a"}, headers={"x-api-key": SHOP, "X-Rheostat-Priority": "HIGH"})
    assert raised.status == 503
    assert "one of normal priority" in raised.error["message"]
    wrong = ask(busy.url, body={"data": "a"}, headers={"x-api-key": LAB, "x-rheostat-priority": "urgent"})
    assert (wrong.status, wrong.error["param"]) == (400, "x-rheostat-priority")
    for thread in threads:
        thread.join()
