"""Conversations that a whole gateway keeps, over scripted chat servers."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rheostat.config import load_config
from rheostat.errors import ConfigError
from rheostat.gateway.handle import ServerHandle
from tests.chat.chat_servers import Chats, Said, ask, chunk, completion, gateway, hello, model, record

S = {"x-rheostat-session": "s"}


@pytest.fixture
def servers() -> Iterator[tuple[Chats, Chats]]:
    pair = Chats(), Chats()
    yield pair
    for server in pair:
        server.close()


def simple(server: Chats, session: str = "{}", more: str = "", of_model: str = "") -> str:
    return f"models: {{m: {model(server, of_model)}}}\nroutes: {{default: {{policy: m, session: {session}}}}}\n{more}"


def heard(server: Chats) -> list[tuple[str, Any]]:
    """What the server was asked last."""
    return [(message["role"], message.get("content")) for message in json.loads(server.asked[-1])["messages"]]


def tell(handle: ServerHandle, text: str, headers: dict[str, str] | None = None, **more: Any) -> Said:
    return ask(handle.url, hello(text, **more), S if headers is None else headers)


def test_a_client_sends_what_is_new_and_the_model_hears_all(servers: tuple[Chats, Chats], tmp_path: Path) -> None:
    server, _ = servers
    with gateway(tmp_path, simple(server)) as handle:
        first = ask(handle.url, {"model": "default", "messages": [{"role": "system", "content": "be short"},
                                                                   {"role": "user", "content": "one"}]}, S)  # fmt: skip
        assert (first.status, first.headers["x-rheostat-history"]) == (200, "0")
        second = tell(handle, "two")
        assert second.headers["x-rheostat-history"] == "1"
        assert heard(server) == [("system", "be short"), ("user", "one"), ("assistant", "you said one"), ("user", "two")]
        said = b"".join([chunk({"role": "assistant", "content": "th"}), chunk({"content": "ree"}), chunk({}, "stop")])
        server.answer = lambda _: [said, b"data: [DONE]\n\n"]
        streamed = tell(handle, "three", stream=True)
        assert streamed.events[-1] == "[DONE]"
        assert streamed.headers["x-rheostat-history"] == "2"
        server.answer = lambda _: completion("4")
        last = tell(handle, "four")
        assert heard(server)[-3:] == [("user", "three"), ("assistant", "three"), ("user", "four")]
        kept = record(tmp_path, last)
        assert kept.history is not None
        assert (kept.history.turns, kept.history.left_out, kept.session) == (3, {}, "s")
        # Others hear nothing of it.
        tell(handle, "alone", {"x-rheostat-session": "t"})
        assert heard(server) == [("user", "alone")]
        tell(handle, "without", {})
        assert heard(server) == [("user", "without")]
        tell(handle, "off", store=False)
        assert heard(server) == [("user", "off")]
        # New instructions take the place of the old.
        ask(handle.url, {"model": "default", "messages": [{"role": "developer", "content": "be long"},
                                                          {"role": "user", "content": "five"}]}, S)  # fmt: skip
        assert heard(server)[0] == ("developer", "be long")
        assert sum(role in ("system", "developer") for role, _ in heard(server)) == 1
        tell(handle, "six")
        assert heard(server)[0] == ("developer", "be long")


def test_a_client_that_holds_the_conversation_is_not_told_it_again(servers: tuple[Chats, Chats], tmp_path: Path) -> None:
    server, _ = servers
    with gateway(tmp_path, simple(server)) as handle:
        tell(handle, "one")
        messages = [{"role": "user", "content": "one, edited"}, {"role": "assistant", "content": "fine"},
                    {"role": "user", "content": "two"}]  # fmt: skip
        ask(handle.url, {"model": "default", "messages": messages}, S)
        assert heard(server) == [("user", "one, edited"), ("assistant", "fine"), ("user", "two")]
        tell(handle, "three")
        assert heard(server)[:3] == [("user", "one, edited"), ("assistant", "fine"), ("user", "two")]
        assert heard(server)[3:] == [("assistant", "you said two"), ("user", "three")]


def test_calls_of_tools_go_on_with_their_results(servers: tuple[Chats, Chats], tmp_path: Path) -> None:
    server, _ = servers
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    server.answer = lambda _: completion(None, "tool_calls", tool_calls=[call], reasoning_content="hm", refusal=None)
    with gateway(tmp_path, simple(server)) as handle:
        tell(handle, "what is it")
        server.answer = lambda _: completion("42")
        result = {"model": "default", "messages": [{"role": "tool", "tool_call_id": "c", "content": "42"}]}
        assert ask(handle.url, result, S).status == 200
        asked = json.loads(server.asked[-1])["messages"]
        assert asked[1] == {"role": "assistant", "content": None, "tool_calls": [call]}
        assert [each["role"] for each in asked] == ["user", "assistant", "tool"]


def test_what_broke_off_is_not_kept_and_a_turn_that_is_sent_again_is_kept_once(
    servers: tuple[Chats, Chats], tmp_path: Path
) -> None:
    server, _ = servers
    with gateway(tmp_path, simple(server)) as handle:
        tell(handle, "one")
        server.answer = lambda _: [chunk({"role": "assistant", "content": "brok"})]  # and no end
        broken = tell(handle, "two", stream=True)
        assert "error" in json.loads(broken.events[-1])
        server.answer = lambda _: (500, b"{}")
        assert tell(handle, "two").status == 502
        server.answer = lambda body: completion(f"{len(body['messages'])}")
        assert tell(handle, "two", {**S, "idempotency-key": "k"}).json["choices"][0]["message"]["content"] == "3"
        assert tell(handle, "two", {**S, "idempotency-key": "k"}).json["choices"][0]["message"]["content"] == "3"
        assert tell(handle, "two", {**S, "x-stainless-retry-count": "1"}).json["choices"][0]["message"]["content"] == "3"
        # The same words again are a turn of their own where nothing says otherwise.
        assert tell(handle, "two", {**S, "x-stainless-retry-count": "0"}).json["choices"][0]["message"]["content"] == "5"


def test_a_second_turn_at_once_is_refused_and_a_client_that_leaves_gives_the_session_back(
    servers: tuple[Chats, Chats], tmp_path: Path
) -> None:
    server, _ = servers
    going, go = threading.Event(), threading.Event()

    def slow(body: Any) -> bytes:
        if body["messages"][-1]["content"] == "slow":
            going.set()
            go.wait(10)
        return completion(str(len(body["messages"])))

    server.answer = slow
    with gateway(tmp_path, simple(server)) as handle:
        thread = threading.Thread(target=tell, args=(handle, "slow"))
        thread.start()
        assert going.wait(10)
        refused = tell(handle, "quick")
        assert (refused.status, refused.json["error"]["code"]) == (409, "conflict")
        assert "another turn of this session" in refused.json["error"]["message"]
        assert tell(handle, "other", {"x-rheostat-session": "t"}).status == 200
        go.set()
        thread.join()
        assert tell(handle, "quick").json["choices"][0]["message"]["content"] == "3"
        go.clear()
        going.clear()
        body, kind = json.dumps(hello("slow")).encode(), {"content-type": "application/json"}
        request = urllib.request.Request(f"{handle.url}/v1/chat/completions", body, {**kind, **S})
        with pytest.raises(TimeoutError):
            urllib.request.urlopen(request, timeout=0.5)
        assert going.is_set()
        until = time.monotonic() + 5.0
        while (said := tell(handle, "after")).status == 409 and time.monotonic() < until:
            time.sleep(0.02)
        assert said.json["choices"][0]["message"]["content"] == "5"
        go.set()


def test_tenants_share_nothing(servers: tuple[Chats, Chats], tmp_path: Path) -> None:
    server, _ = servers
    tenants = "{key: key-of-a-0123456789, tenant: a}, {key: key-of-b-0123456789, tenant: b}"
    keys = f"keys: [{tenants}, {{key: of-none-0123456789}}]\n"
    with gateway(tmp_path, simple(server, more=keys)) as handle:
        for key in ("key-of-a-0123456789", "key-of-b-0123456789", "of-none-0123456789"):
            tell(handle, f"secret of {key}", {**S, "authorization": f"Bearer {key}"})
            assert heard(server) == [("user", f"secret of {key}")]
        tell(handle, "again", {**S, "authorization": "Bearer key-of-a-0123456789"})
        assert heard(server)[0] == ("user", "secret of key-of-a-0123456789")
        assert len(heard(server)) == 3


def test_no_text_of_a_session_is_logged_recorded_or_shown(
    servers: tuple[Chats, Chats], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server, _ = servers
    more = "sessions: {store: sqlite, path: kept.db}\nadmin: {secret: a-secret-of-16-characters, port: 0}\n"
    with gateway(tmp_path, simple(server, more=more)) as handle:
        tell(handle, "a hidden word")
        record(tmp_path, tell(handle, "another hidden word"))
        assert b"hidden" not in urllib.request.urlopen(f"{handle.url}/metrics", timeout=5).read()
    assert "hidden" not in caplog.text
    for file in tmp_path.iterdir():
        assert b"hidden" not in file.read_bytes() or file.name.startswith("kept.db")


def test_a_conversation_is_kept_in_its_bounds(servers: tuple[Chats, Chats], tmp_path: Path) -> None:
    server, _ = servers
    with gateway(tmp_path, simple(server, more="sessions: {max_turns: 2, max_bytes: 1000}\n")) as handle:
        for number in range(4):
            tell(handle, f"{number}")
        tell(handle, "last")
        assert heard(server) == [("user", "2"), ("assistant", "you said 2"), ("user", "3"), ("assistant", "you said 3"),
                                 ("user", "last")]  # fmt: skip
        tell(handle, "x" * 400)
        tell(handle, "y" * 100)
        assert len(heard(server)) == 3  # of what came before, the latest turn has room
        large = tell(handle, "z" * 1001)
        assert (large.status, large.json["error"]["code"]) == (413, "too_large")
        server.answer = lambda _: completion("a" * 1001)
        assert tell(handle, "so long").status == 413
        server.answer = lambda _: completion("short")
        tell(handle, "end")
        assert [text for _, text in heard(server)][-3:] == ["y" * 100, f"you said {'y' * 100}", "end"]


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ("session: {fit: summary}", "`fit: summary` and `summary_by`, the model that writes it, go together"),
        ("session: {fit: summary, summary_by: n}", "unknown model `n`"),
        ("session: {fit: windows}", "window"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(tmp_path: Path, config: str, told: str) -> None:
    path = tmp_path / "rheostat.yaml"
    path.write_text(f"task: chat\nmodels: {{m: {{backend: chat, base_url: 'http://x/v1', model: m}}}}\n"
                    f"routes: {{default: {{policy: m, {config}}}}}\n")  # fmt: skip
    with pytest.raises(ConfigError, match=told):
        load_config(str(path))
    path.write_text("models: {m: {backend: rules, rules: []}}\nroutes: {default: {policy: m, session: {}}}\n")
    with pytest.raises(ConfigError, match="only conversations are kept"):
        load_config(str(path))
    path.write_text("task: chat\nmodels: {m: {backend: rules, rules: []}}\nroutes: {default: {policy: m, session: {}}}\n"
                    "records: {sqlite: a.db}\nsessions: {store: sqlite, path: ./a.db}\n")  # fmt: skip
    with pytest.raises(ConfigError, match="is the same file as"):
        load_config(str(path))
