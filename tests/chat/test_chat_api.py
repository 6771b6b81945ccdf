"""Conversations through a whole gateway, over scripted chat servers."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chat_servers import SECRET, Chats, ask, completion, gateway, hello, model, record

from rheostat.config import load_config
from rheostat.errors import ConfigError

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


@pytest.fixture
def servers() -> Iterator[tuple[Chats, Chats]]:
    pair = Chats(), Chats()
    yield pair
    for server in pair:
        server.close()


def simple(server: Chats, more: str = "") -> str:
    return f"models: {{m: {model(server, more)}}}\nroutes: {{default: {{policy: m}}}}\n"


def test_the_answer_is_the_models_byte_for_byte_and_the_question_is_the_clients(
    servers: tuple[Chats, Chats], tmp_path: Path
) -> None:
    server, _ = servers
    said = completion("hi 模型😀")
    server.answer = lambda _: said
    sent = (
        b'{"model":"default","messages":[{"role":"user","content":[{"type":"text","text":"\xe6\xa8\xa1 \\u00e9"},'
        b'{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw"}}],"x":1}],"temperature":1.0e-1 ,'
        b'"tools": [ {"type":"function","function":{"name":"f","parameters":{"b":1,"a":2}}} ],'
        b'"response_format":{"type": "json_schema"},"unknown_field":{"big":12345678901234567890123,"d":1.10},"user":"u"}'
    )
    with gateway(tmp_path, simple(server)) as handle:
        reply = ask(handle.url, sent)
        assert reply.status == 200
        assert reply.body == said
        assert reply.headers["x-rheostat-model"] == "m"
        assert reply.headers["x-rheostat-request-id"] == reply.headers["x-request-id"]
        (got,) = server.asked
        for part in (b'"messages":[{"role":"user","content":[{"type":"text","text":"\xe6\xa8\xa1 \\u00e9"}', b'1.0e-1',
                     b'[ {"type":"function","function":{"name":"f","parameters":{"b":1,"a":2}}} ]',
                     b'"response_format":{"type": "json_schema"}',
                     b'"unknown_field":{"big":12345678901234567890123,"d":1.10}', b'"user":"u"'):  # fmt: skip
            assert part in got
        assert json.loads(got) == {**json.loads(sent), "model": "real-name"}
        assert server.keys == [f"Bearer {SECRET}"]


def test_a_record_holds_nothing_of_the_conversation(servers: tuple[Chats, Chats], tmp_path: Path) -> None:
    server, other = servers
    server.answer = lambda _: completion("the secret answer", "length", [-0.1], reasoning="secret thought")
    other.answer = lambda _: completion("the other secret answer")
    config = (
        f"models: {{m: {model(server, 'confidence: mean_logprob')}, n: {model(other)}}}\n"
        "routes: {default: {policy: {cascade: {stages: [m, n], threshold: 0.99}}}}\n"
    )
    with gateway(tmp_path, config) as handle:
        kept = record(tmp_path, ask(handle.url, hello("a secret question")))
        assert b"secret" not in urllib.request.urlopen(f"{handle.url}/metrics", timeout=5).read()
    assert kept.status == "ok"
    assert kept.label == "stop"
    assert [outcome.prediction and outcome.prediction.label for outcome in kept.outcomes] == ["length", "stop"]
    assert kept.input is not None
    assert (kept.input.kind, kept.input.text) == ("chat", None)
    for file in tmp_path.iterdir():
        assert b"secret" not in file.read_bytes().replace(SECRET.encode(), b"") or file.name == "rheostat.yaml"


def test_raw_records_hold_both_sides(servers: tuple[Chats, Chats], tmp_path: Path) -> None:
    with gateway(tmp_path, simple(servers[0]), records="{sqlite: records.db, input: raw}") as handle:
        kept = record(tmp_path, ask(handle.url, hello("plain")))
    assert kept.label == "you said plain"
    assert kept.input is not None
    assert json.loads(kept.input.text or "") == hello("plain")
    assert kept.outcomes[0].prediction is not None
    assert kept.outcomes[0].prediction.output is None


def test_rules_read_the_users_last_text_and_what_the_conversation_needs(
    servers: tuple[Chats, Chats], tmp_path: Path
) -> None:
    weak, strong = servers
    weak.answer = lambda _: completion("weak")
    strong.answer = lambda _: completion("strong")
    config = f"""
models: {{weak: {model(weak)}, strong: {model(strong)},
  canned: {{backend: template, label: canned, template: "You asked: {{text}}"}}}}
routes:
  default:
    policy:
      chain:
        - rules:
            - {{contains: [opening hours], use: canned}}
            - {{when: "data.tools || data.images", use: strong}}
            - {{when: "data.format == 'json_object'", use: strong}}
            - {{when: "size(data.messages) > 3", use: strong}}
        - weak
"""
    image = [{"type": "text", "text": "what is it"}, {"type": "image_url", "image_url": {"url": "data:"}}]
    long = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}] * 2
    cases: list[tuple[dict[str, Any], str]] = [
        (hello("hello"), "weak"),
        (hello("hello", tools=TOOLS), "strong"),
        (hello(image), "strong"),  # type: ignore[arg-type]
        (hello("x", response_format={"type": "json_object"}), "strong"),
        (hello("x", response_format={"type": "text"}), "weak"),
        ({"model": "default", "messages": long}, "strong"),
        (
            {"model": "default", "messages": [*long[:2], {"role": "user", "content": "Opening Hours?"}]},
            "You asked: Opening Hours?",
        ),
        ({"model": "default", "messages": [{"role": "user", "content": "opening hours"}, *long[1:3]]}, "weak"),
    ]
    with gateway(tmp_path, config) as handle:
        for body, wanted in cases:
            reply = ask(handle.url, body)
            assert reply.json["choices"][0]["message"]["content"] == wanted, body
            assert reply.json["object"] == "chat.completion"
            assert reply.json["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("kind", ["mean_logprob", "margin"])
def test_a_cascade_on_token_chances_which_the_client_does_not_see(
    kind: str, servers: tuple[Chats, Chats], tmp_path: Path
) -> None:
    weak, strong = servers
    weak.answer = lambda body: completion("weak", logprobs=[-0.01, -0.02] if "easy" in str(body) else [-0.01, -2.9])
    strong.answer = lambda _: completion("strong")
    config = (
        f"models: {{weak: {model(weak, f'confidence: {kind}')}, strong: {model(strong)}}}\n"
        "routes: {default: {policy: {cascade: {stages: [weak, strong], threshold: 0.8}}}}\n"
    )
    with gateway(tmp_path, config) as handle:
        easy = ask(handle.url, hello("easy"))
        assert easy.json["choices"][0]["message"]["content"] == "weak"
        assert "logprobs" not in easy.json["choices"][0]
        assert b'"x_unknown":[0.001, "\xe6\xa8\xa1\xe5\x9e\x8b"]' in easy.body.replace(b": ", b":")
        assert ask(handle.url, hello("hard")).json["choices"][0]["message"]["content"] == "strong"
        wanted = ask(handle.url, hello("easy", logprobs=True)).json["choices"][0]["logprobs"]["content"]
        assert [len(token["top_logprobs"]) for token in wanted] == ([2, 2] if kind == "mean_logprob" else [0, 0])
        full = ask(handle.url, hello("easy", logprobs=True, top_logprobs=5)).json["choices"][0]["logprobs"]["content"]
        assert [len(token["top_logprobs"]) for token in full] == [2, 2]
    asked = [json.loads(body) for body in weak.asked]
    assert all(body["logprobs"] is True for body in asked)
    alternatives = [body.get("top_logprobs") for body in asked]
    assert alternatives == ([None] * 3 + [5] if kind == "mean_logprob" else [2, 2, 2, 5])
    assert all("logprobs" not in json.loads(body) for body in strong.asked)


def test_a_model_that_fails_is_replaced_and_one_that_refuses_is_not(servers: tuple[Chats, Chats], tmp_path: Path) -> None:
    bad, good = servers
    config = (
        f"models: {{bad: {model(bad, 'peers: [good], breaker: {failureThreshold: 0}')}, good: {model(good)}}}\n"
        "routes: {default: {policy: bad}}\n"
    )
    with gateway(tmp_path, config) as handle:
        for broken in (
            (500, b"{}"), b"no json", b'{"choices":[]}', completion(""), completion(None),
            b'{"error":{"message":"busy","code":503}}',
        ):  # fmt: skip
            bad.answer = lambda _, broken=broken: broken
            assert ask(handle.url, hello()).json["choices"][0]["message"]["content"] == "you said hello", broken
        bad.answer = lambda _: (400, b'{"error":{"message":"you are secret","code":"bad"}}')
        refused = ask(handle.url, hello())
        assert refused.status == 400
        assert refused.json == {"error": {
            "message": "the model cannot take this input", "type": "invalid_request_error", "param": None,
            "code": "input_refused"}}  # fmt: skip
        good.answer = bad.answer = lambda _: (400, b'{"error":{"code":"context_length_exceeded"}}')
        large = ask(handle.url, hello())
        assert (large.status, large.json["error"]["code"]) == (413, "context_length_exceeded")


def test_answers_without_text_that_are_answers(servers: tuple[Chats, Chats], tmp_path: Path) -> None:
    server, _ = servers
    calls = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    with gateway(tmp_path, simple(server)) as handle:
        for said, label in (
            (completion(None, "tool_calls", tool_calls=calls), "tool_calls"), (completion("", "length"), "length"),
            (completion(None, refusal="no"), "stop"),
        ):  # fmt: skip
            server.answer = lambda _, said=said: said
            reply = ask(handle.url, hello())
            assert reply.body == said
            assert record(tmp_path, reply).label == label


def test_an_input_that_a_model_cannot_hold_passes_it_over(servers: tuple[Chats, Chats], tmp_path: Path) -> None:
    small, large = servers
    config = (
        f"models: {{small: {model(small, 'max_input: 900, peers: [large]')}, large: {model(large)}}}\n"
        "routes: {default: {policy: small}}\n"
    )
    image = [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 8000}},
        {"type": "text", "text": "a"},
    ]
    with gateway(tmp_path, config) as handle:
        assert ask(handle.url, hello("short")).headers["x-rheostat-model"] == "small"
        assert ask(handle.url, hello(image)).headers["x-rheostat-model"] == "small"  # type: ignore[arg-type]
        assert ask(handle.url, hello(image + image[:1])).headers["x-rheostat-model"] == "large"  # type: ignore[arg-type]
        assert ask(handle.url, hello("long " * 800)).headers["x-rheostat-model"] == "large"
        earlier = [{"role": "user", "content": "long " * 800}, {"role": "user", "content": "short"}]
        assert ask(handle.url, {"model": "default", "messages": earlier}).headers["x-rheostat-model"] == "large"


def test_the_cache_tells_questions_apart_by_all_that_changes_the_answer(
    servers: tuple[Chats, Chats], tmp_path: Path
) -> None:
    server, _ = servers
    config = simple(server).replace("{policy: m}", "{policy: m, cache: {ttl: 60s}}")
    with gateway(tmp_path, config) as handle:
        first = ask(handle.url, hello("a", temperature=0))
        again = ask(handle.url, hello("a", temperature=0, user="u2", metadata={}))
        assert (first.headers["x-rheostat-cache"], again.headers["x-rheostat-cache"]) == ("miss", "hit")
        assert again.body == first.body
        for other in (
            hello("a"),
            hello("a", temperature=1),
            hello("a", temperature=0, tools=TOOLS),
            hello("b", temperature=0),
        ):
            assert ask(handle.url, other).headers["x-rheostat-cache"] == "miss"
        streamed = ask(handle.url, hello("a", temperature=0, stream=True, stream_options={"include_usage": True}))
        assert streamed.headers["x-rheostat-cache"] == "hit"
        said = [json.loads(event) for event in streamed.events[:-1]]
        assert said[0]["choices"][0]["delta"] == {"role": "assistant", "content": "you said a"}
        assert said[1]["choices"][0]["finish_reason"] == "stop"
        assert said[2]["usage"]["total_tokens"] == 7
        assert streamed.events[-1] == "[DONE]"
    assert len(server.asked) == 5


def test_who_may_ask_whom_and_errors_in_openais_form(servers: tuple[Chats, Chats], tmp_path: Path) -> None:
    config = (
        simple(servers[0])
        + """
keys:
  - {key: plain-client-key-1, routes: [default]}
  - {key: forcing-client-key-1, may_force: true}
server: {max_body: 2000}
"""
    )
    plain, forcing = {"authorization": "Bearer plain-client-key-1"}, {"authorization": "Bearer forcing-client-key-1"}

    def error(body: Any, headers: dict[str, str]) -> tuple[int, str, str | None, str]:
        reply = ask(handle.url, body, headers)
        told = reply.json["error"]
        assert set(told) == {"message", "type", "param", "code"}
        assert told["message"]
        return reply.status, told["type"], told["param"], told["code"]

    bad = "invalid_request_error"
    with gateway(tmp_path, config) as handle:
        assert ask(handle.url, hello(), plain).status == 200
        forced = ask(handle.url, {**hello(), "model": "m"}, forcing)
        assert (forced.status, forced.headers["x-rheostat-route-type"]) == (200, "forced")
        assert error({**hello(), "model": "m"}, plain)[:2] == (403, "permission_error")
        assert error(hello(), {}) == (401, "authentication_error", "authorization", "invalid_api_key")
        assert error({**hello(), "model": "gpt-9"}, plain) == (404, bad, "model", "model_not_found")
        assert error({"messages": hello()["messages"]}, plain) == (400, bad, "model", "invalid_request")
        for wrong in ([], {}, None, [{}], [{"role": 1}], "hi", [1]):
            assert error({"model": "default", "messages": wrong}, plain) == (400, bad, "messages", "invalid_request")
        for body in (b"", b"{", b"[]", b'{"model":"default","messages":[{"role":"user","content":"\\ud83d"}]}',
                     b"\xff", b'{"a":' + b"[" * 1900):  # fmt: skip
            assert error(body, plain)[:2] == (400, bad)
        assert error(hello("x" * 3000), plain)[:2] == (413, bad)
        assert error(hello(), {**plain, "x-rheostat-timeout-ms": "-1"})[0] == 400
        request = urllib.request.Request(f"{handle.url}/v1/models", headers=plain)
        with urllib.request.urlopen(request, timeout=5) as listing:
            listed = json.loads(listing.read())["data"]
        assert {each["id"]: each["owned_by"] for each in listed} == {"default": "rheostat", "m": "rheostat"}


def test_a_gateway_without_conversations_says_so(tmp_path: Path) -> None:
    with gateway(tmp_path, "models: {t: {backend: template, label: a}}\nroutes: {default: {policy: t}}\n") as handle:
        assert ask(handle.url, hello()).json["choices"][0]["message"]["content"] == "a"
    with gateway(
        tmp_path, "models: {t: {backend: template, label: a}}\nroutes: {default: {policy: t}}\n", "classify"
    ) as handle:
        assert ask(handle.url, hello()).status == 404


CHAT = "{backend: chat, base_url: 'http://x/v1', model: m}"
ONE = "models: {m: M}\nroutes: {default: {policy: m}}\n"
TWO = "task: chat\nmodels: {m: M, n: M}\nroutes: {default: {policy: POLICY}}\n"


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (ONE, "set `task: chat`"),
        (f"task: chat\nlabels: [a]\n{ONE}", "are texts; remove `labels`"),
        (TWO.replace("POLICY", "{blend: {weights: {m: 1, n: 1}}}"), "cannot be mixed"),
        (TWO.replace("POLICY", "{cascade: {stages: [m, n], threshold: 0.5, blend: 0.2}}"), "cannot be mixed"),
        (f"task: chat\n{ONE}".replace("policy: m", "policy: m, fallback: {later: true}"), "not completed later"),
        (f"task: chat\n{ONE}".replace("M}", CHAT[:-1] + ", workers: 2}}"), "computes elsewhere"),
        (f"task: chat\n{ONE}".replace("M}", CHAT[:-1] + ", batch: {}}}"), "one row a call"),
    ],
)
def test_what_makes_no_sense_is_refused(config: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "rheostat.yaml"
    path.write_text(config.replace("M", CHAT))
    with pytest.raises(ConfigError, match=told):
        load_config(str(path))
