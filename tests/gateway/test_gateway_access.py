"""Who may do what: clients' keys, routing by hand, the admin pages."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from gateway_wire import ask, raw

from conftest import SECRET
from rheostat.gateway.handle import ServerHandle

Start = Callable[[str], ServerHandle]
KEYS = """
keys:
  - {key: "key-of-the-tester-0001", tenant: lab, may_force: true}
  - {key: "key-of-a-client-000002", tenant: shop, routes: [default]}
admin: {secret: "an admin secret of some length", port: 9098}
"""
TESTER, CLIENT = "key-of-the-tester-0001", "key-of-a-client-000002"


@pytest.fixture
def keyed(start: Start) -> ServerHandle:
    return start(KEYS)


def test_a_key_is_needed_where_keys_are_configured(keyed: ServerHandle) -> None:
    wrong = "key-that-nobody-made-09"
    for headers in ({}, {"x-api-key": wrong}, {"authorization": f"Bearer {wrong}"}, {"authorization": f"Basic {CLIENT}"},
                    {"authorization": "Bearer "}, {"authorization": f"Bearer {SECRET}"}):  # fmt: skip
        judgement = {"request_id": "r", "label": "a"}
        for path, body in (("/v1/predict", {"data": "a"}), ("/v1/feedback", judgement), ("/v1/models", None)):
            reply = ask(keyed.url, path, body=body, headers=headers)
            assert reply.status == 401
            assert reply.headers["www-authenticate"] == "Bearer"
            assert wrong.encode() not in reply.body
    for headers in ({"x-api-key": CLIENT}, {"Authorization": f"Bearer {CLIENT}"}, {"authorization": f"bearer {CLIENT}"}):
        assert ask(keyed.url, body={"data": "a"}, headers=headers).status == 200
        assert ask(keyed.url, "/v1/models", headers=headers).status == 200


def test_health_and_metrics_need_no_key(keyed: ServerHandle) -> None:
    for path in ("/health/live", "/health/ready", "/metrics", "/openapi.json"):
        assert ask(keyed.url, path).status == 200


def test_a_key_goes_only_where_it_may(keyed: ServerHandle) -> None:
    reply = ask(keyed.url, body={"data": "a", "route": {"name": "ruled"}}, headers={"x-api-key": CLIENT})
    assert reply.status == 403
    assert reply.error["param"] == "route.name"
    assert ask(keyed.url, body={"data": "a", "route": {"name": "ruled"}}, headers={"x-api-key": TESTER}).status == 200


@pytest.mark.parametrize("by_hand", [{"force_model": "large"}, {"skip_route": True}])
def test_routing_by_hand_needs_a_key_that_may(gateway: ServerHandle, keyed: ServerHandle, by_hand: Any) -> None:
    body = {"data": "a", "route": by_hand}
    assert ask(gateway.url, body=body).status == 403
    assert ask(keyed.url, body=body, headers={"x-api-key": CLIENT}).status == 403
    assert ask(keyed.url, body={"items": [{"data": "a"}], "route": by_hand}, headers={"x-api-key": CLIENT}).status == 403
    reply = ask(keyed.url, body=body, headers={"x-api-key": TESTER})
    assert reply.status == 200
    assert reply.json["data"]["route_info"]["forced"] is True
    assert reply.headers["x-rheostat-route-type"] == ("forced" if "force_model" in by_hand else "skipped")
    assert reply.headers["x-rheostat-model"] == ("large" if "force_model" in by_hand else "fast")


def test_a_forced_model_stays_on_its_route(keyed: ServerHandle) -> None:
    for model in ("sleepy", "../../etc/passwd", "nobody", ""):
        body = {"data": "a", "route": {"force_model": model}}
        assert ask(keyed.url, body=body, headers={"x-api-key": TESTER}).status == 400


def test_admin_is_closed_without_a_secret(start: Start) -> None:
    handle = start("")
    assert handle.admin_url is None
    for path in ("/admin/status", "/admin/config", "/admin/reload"):
        assert ask(handle.url, path).status == 404


SPELLINGS = [
    "/admin/config", "//admin/config", "/admin/../admin/config", "/ADMIN/config", "/admin/config/", "/%61dmin/config",
    "/admin%2Fconfig", "/adminx", "/admin/status", "/admin/reload", "/admin/records/x", "/", "*",
]  # fmt: skip


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "HEAD", "OPTIONS", "DELETE"])
def test_admin_needs_its_secret_in_every_spelling(keyed: ServerHandle, method: str) -> None:
    url = keyed.admin_url or ""
    credentials = ["", "Authorization: Bearer wrong\r\n", f"Authorization: Bearer {TESTER}\r\n", f"X-Api-Key: {TESTER}\r\n",
                   f"Authorization: Basic {SECRET}\r\n", "X-HTTP-Method-Override: GET\r\n",
                   "Authorization: Bearer\r\n"]  # fmt: skip
    before = keyed.server.router.status()["config_version"]
    for path in SPELLINGS:
        for given in credentials:
            got = raw(url, f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{given}\r\n".encode())
            assert got.startswith((b"HTTP/1.1 401 ", b"HTTP/1.1 400 ")), (path, given)
    assert keyed.server.router.status()["config_version"] == before
    assert keyed.server.router.reloads == 0


def test_with_the_secret_only_exact_paths_are_pages(gateway: ServerHandle) -> None:
    url = gateway.admin_url or ""
    secret = {"authorization": f"Bearer {SECRET}"}
    assert ask(url, "/admin/status", headers=secret).json["models"]["fast"]["breaker"] == "closed"
    for path in ("/ADMIN/config", "/admin/config/", "/adminx", "/admin", "/v1/models", "/admin/records/nobody"):
        assert ask(url, path, headers=secret).status == 404
    assert ask(url, "/admin/reload", headers=secret).status == 404
    assert ask(url, "/admin/status", headers=secret, method="POST").status == 404


def test_the_config_is_shown_without_secrets(keyed: ServerHandle) -> None:
    reply = ask(keyed.admin_url or "", "/admin/config", headers={"authorization": f"Bearer {SECRET}"})
    assert reply.status == 200
    for secret in (TESTER, CLIENT, SECRET):
        assert secret.encode() not in reply.body
    assert reply.json["models"]["large"]["cost"] == 10
    assert [key["tenant"] for key in reply.json["keys"]] == ["lab", "shop"]
    assert len({key["key"] for key in reply.json["keys"]}) == 2


def test_no_page_shows_a_secret(keyed: ServerHandle) -> None:
    ask(keyed.url, body={"data": "secret", "route": {"name": "odd"}}, headers={"x-api-key": TESTER})
    paths = ("/metrics", "/openapi.json", "/health/ready", f"/v1/models?key={CLIENT}")
    pages = [ask(keyed.url, path).body for path in paths]
    pages.append(ask(keyed.url, "/v1/models", headers={"x-api-key": CLIENT}).body)
    pages.append(ask(keyed.admin_url or "", "/admin/status", headers={"authorization": f"Bearer {SECRET}"}).body)
    for page in pages:
        for secret in (TESTER, CLIENT, SECRET, "hunter2", "gateway_models"):
            assert secret.encode() not in page


def test_reload_over_admin(keyed: ServerHandle) -> None:
    secret = {"authorization": f"Bearer {SECRET}"}
    url = keyed.admin_url or ""
    path = keyed.config_path
    with open(path) as file:
        good = file.read()
    with open(path, "w") as file:
        file.write(good.replace("threshold: 0.9", "threshold: 7"))
    refused = ask(url, "/admin/reload", headers=secret, method="POST")
    assert refused.status == 422
    assert "threshold" in refused.json["error"]
    assert ask(keyed.url, body={"data": "a?"}, headers={"x-api-key": CLIENT}).headers["x-rheostat-model"] == "large"
    with open(path, "w") as file:
        file.write(good.replace("threshold: 0.9", "threshold: 0.4").replace(CLIENT, "key-of-a-client-000003"))
    taken = ask(url, "/admin/reload", headers=secret, method="POST")
    assert taken.status == 200
    assert taken.json["reloaded"] is True
    assert ask(keyed.url, body={"data": "a?"}, headers={"x-api-key": CLIENT}).status == 401
    reply = ask(keyed.url, body={"data": "a?"}, headers={"x-api-key": "key-of-a-client-000003"})
    assert reply.headers["x-rheostat-model"] == "fast"
    assert reply.json["data"]["route_info"]["config_version"] == taken.json["config_version"]


def test_a_record_is_found_by_its_id(gateway: ServerHandle) -> None:
    url, secret = gateway.admin_url or "", {"authorization": f"Bearer {SECRET}"}
    made = ask(gateway.url, body={"data": "find me?"}).json["request_id"]
    record = ask(url, f"/admin/records/{made}", headers=secret).json
    assert (record["id"], record["selected_model"], record["label"]) == (made, "large", "no")
    for path in ("../../etc/passwd", "%2e%2e%2fetc%2fpasswd", "a%00b", "%22%20OR%201=1"):
        assert ask(url, f"/admin/records/{path}", headers=secret).status == 404
    assert json.loads(json.dumps(record))["input"]["length"] == 8


def test_a_request_is_explained_to_who_has_the_secret(gateway: ServerHandle) -> None:
    url, secret = gateway.admin_url or "", {"authorization": f"Bearer {SECRET}"}
    made = ask(gateway.url, body={"data": "explain me?"}).json["request_id"]
    assert ask(url, f"/admin/explain/{made}").status == 401
    assert ask(url, f"/admin/explain/{made}", headers=secret, method="POST").status == 404
    assert ask(url, "/admin/explain/nobody%2F..", headers=secret).status == 404
    found = ask(url, f"/admin/explain/{made}", headers=secret).json
    assert (found["record"]["id"], found["explanation"]["id"], found["feedback"]) == (made, made, [])
    stations = found["explanation"]["stations"]
    assert [each["kind"] for each in stations if each["kind"] in ("arrived", "ended")] == ["arrived", "ended"]
    assert {each["model"] for each in stations if each["kind"] == "call"} == {"fast", "large"}
    assert found["explanation"]["text"][0].startswith(f"request {made} on 20")
