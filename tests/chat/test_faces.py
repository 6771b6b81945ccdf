"""The pages beside conversations: completions, embeddings, Anthropic's messages; scripted servers, and hostile bodies."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from chat_servers import Chats, Said, chunk, completion, gateway, model
from hypothesis import given, settings
from hypothesis import strategies as st

from rheostat.config import load_config
from rheostat.errors import BadRequest, ConfigError
from rheostat.gateway.app import FACES
from rheostat.gateway.face import Face
from rheostat.gateway.messages_answer import message_of
from rheostat.gateway.messages_events import MessageEvents
from rheostat.gateway.messages_face import MessagesFace
from rheostat.pool.backend import Piece

TEXT = b'{"id":"t1","object":"text_completion","choices":[{"text":" on","index":0,"finish_reason":"stop"}],"x":1.10}'
VECTORS = b'{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.10,1e-3]}],"usage":{"prompt_tokens":3}}'


@pytest.fixture
def servers() -> Iterator[tuple[Chats, Chats]]:
    pair = Chats(), Chats()
    yield pair
    for server in pair:
        server.close()


def post(url: str, page: str, body: Any, **headers: str) -> Said:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {"content-type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    try:
        with urllib.request.urlopen(urllib.request.Request(url + page, data, named), timeout=20) as reply:
            return Said(reply.status, dict(reply.headers), reply.read())
    except urllib.error.HTTPError as error:
        return Said(error.code, dict(error.headers), error.read())


def two(first: Chats, second: Chats, serves: str = "serves: [completion, embedding]") -> str:
    return (
        f"models: {{m: {model(first, serves + ', peers: [n]')}, n: {model(second, serves)}, c: {model(first)}}}\n"
        "routes: {default: {policy: m, models: [m, n], fallback: {retry: 0}}, chats: {policy: c, models: [c]}}\n"
    )


def test_texts_go_on_and_are_embedded_byte_for_byte_by_a_peer_where_the_first_fails(
    servers: tuple[Chats, Chats], tmp_path: Path
) -> None:
    first, second = servers
    first.answer = lambda _: (500, b"{}")
    second.answer = lambda body: VECTORS if "input" in body else TEXT
    with gateway(tmp_path, two(first, second)) as handle:
        for page, field, said in (("/v1/completions", "prompt", TEXT), ("/v1/embeddings", "input", VECTORS)):
            sent = b'{"model":"default","%b":"go \\u00e9","unknown":{"d":1.10},"dimensions":8}' % field.encode()
            reply = post(handle.url, page, sent)
            assert (reply.status, reply.body) == (200, said)
            assert (reply.headers["x-rheostat-model"], reply.headers["x-rheostat-attempts"]) == ("n", "2")
            assert b'"%b":"go \\u00e9"' % field.encode() in second.asked[-1]
            assert b'"unknown":{"d":1.10}' in second.asked[-1]
            assert json.loads(second.asked[-1]) == {**json.loads(sent), "model": "real-name"}


def test_what_a_route_does_not_serve_is_refused_with_who_does(servers: tuple[Chats, Chats], tmp_path: Path) -> None:
    with gateway(tmp_path, two(*servers)) as handle:
        for page, body in (
            ("/v1/embeddings", {"model": "chats", "input": "x"}),
            ("/v1/completions", {"model": "c", "prompt": "x"}),
        ):
            error = post(handle.url, page, body).json["error"]
            assert (error["code"], error["param"], error["type"]) == ("unsupported", "model", "invalid_request_error")
            assert page in error["message"]
            assert "default" in error["message"]
        talk = post(handle.url, "/v1/chat/completions", {"model": "default", "messages": [{"role": "user", "content": "x"}]})
        assert talk.status == 400
        assert "chats" in talk.json["error"]["message"]
        assert not servers[0].asked
        with urllib.request.urlopen(f"{handle.url}/v1/models/default", timeout=5) as reply:
            told = json.loads(reply.read())
        assert (told["object"], told["serves"]) == ("model", ["completion", "embedding"])
        assert told["created"] > 0


def test_as_many_vectors_as_texts_or_the_next_model(servers: tuple[Chats, Chats], tmp_path: Path) -> None:
    first, second = servers
    both = VECTORS.replace(b'"embedding":[0.10,1e-3]}', b'"embedding":"AAAA"},{"embedding":[1]}')
    first.answer, second.answer = (lambda _: VECTORS), (lambda _: both)
    with gateway(tmp_path, two(first, second)) as handle:
        reply = post(handle.url, "/v1/embeddings", {"model": "default", "input": ["a", [1, 2]]})
        assert (reply.status, reply.body) == (200, both)
        first.answer = second.answer = lambda _: b'{"data":[]}'
        assert post(handle.url, "/v1/embeddings", {"model": "default", "input": "a"}).status == 502
        for wrong in (None, [], 1, [None], [[]], {"a": 1}, [True]):
            error = post(handle.url, "/v1/embeddings", {"model": "default", "input": wrong}).json["error"]
            assert (error["param"], error["code"]) == ("input", "invalid_request"), wrong


def test_a_completion_of_several_texts_streams_to_the_end_of_each(servers: tuple[Chats, Chats], tmp_path: Path) -> None:
    def part(index: int, text: str, finish: str | None = None) -> bytes:
        choice = {"index": index, "text": text, "finish_reason": finish}
        return b"data: %b\n\n" % json.dumps({"object": "text_completion", "choices": [choice]}).encode()

    stream = [part(0, "模"), part(1, "b"), part(0, "", "stop"), part(1, "c", "length")]
    first, second = servers
    first.answer = lambda _: [b"data: null\n\n", *stream, b"data: [DONE]\n\n"]
    with gateway(tmp_path, two(first, second)) as handle:
        asked = {"model": "default", "prompt": ["x", "y"], "stream": True}
        assert post(handle.url, "/v1/completions", asked).body == b"".join(stream) + b"data: [DONE]\n\n"
        first.answer = lambda _: stream[:3]
        assert b'"error"' in post(handle.url, "/v1/completions", asked).body  # the second never ended


def test_token_chances_of_a_completion_decide_and_are_taken_out_again(servers: tuple[Chats, Chats], tmp_path: Path) -> None:
    weak, strong = servers
    chances = {"tokens": ["a"], "token_logprobs": [-2.0], "top_logprobs": [{"a": -2.0}]}
    said = {
        "object": "text_completion",
        "choices": [{"text": "weak", "index": 0, "logprobs": chances, "finish_reason": "stop"}],
    }
    weak.answer = lambda _: json.dumps(said).encode()
    strong.answer = lambda _: TEXT
    config = (
        f"models: {{weak: {model(weak, 'serves: [completion], confidence: mean_logprob')}, "
        f"strong: {model(strong, 'serves: [completion]')}}}\n"
        "routes: {default: {policy: {cascade: {stages: [weak, strong], threshold: 0.8}}}}\n"
    )
    with gateway(tmp_path, config) as handle:
        assert post(handle.url, "/v1/completions", {"model": "default", "prompt": "x"}).body == TEXT
        assert json.loads(weak.asked[-1])["logprobs"] == 1
        chances["token_logprobs"] = [-0.01]
        assert "logprobs" not in post(handle.url, "/v1/completions", {"model": "default", "prompt": "x"}).json["choices"][0]
        wanted = post(handle.url, "/v1/completions", {"model": "default", "prompt": "x", "logprobs": 1}).json["choices"][0]
        assert wanted["logprobs"] == chances


def test_vectors_of_different_models_are_no_fallback(tmp_path: Path) -> None:
    path = tmp_path / "rheostat.yaml"
    chat = "{backend: chat, base_url: 'http://x/v1', serves: [embedding], model: "
    path.write_text(f"task: chat\nmodels: {{a: {chat}bge}}, b: {chat}e5}}}}\nroutes: {{default: {{policy: a}}}}\n")
    with pytest.raises(ConfigError, match="vectors cannot be compared"):
        load_config(str(path))
    path.write_text(f"task: chat\nmodels: {{a: {chat}bge}}, b: {chat}bge}}}}\nroutes: {{default: {{policy: a}}}}\n")
    load_config(str(path))


SCHEMA = {"type": "object", "properties": {"b": {}, "a": {}}}
ASKED = {
    "model": "default",
    "max_tokens": 9,
    "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "look"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw"}}]},
        {"role": "assistant", "content": [{"type": "text", "text": "calling"},
            {"type": "tool_use", "id": "t1", "name": "f", "input": {"b": 1, "a": 2}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "gone", "is_error": True},
            {"type": "text", "text": "and now?"}]},
    ],
    "tools": [{"name": "f", "description": "d", "input_schema": SCHEMA}],
    "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
    "stop_sequences": ["END"],
    "temperature": 0.5,
    "top_k": 3,
    "metadata": {"user_id": "u7"},
}  # fmt: skip
WANTED = {
    "model": "real-name",
    "max_tokens": 9,
    "messages": [
        {"role": "system", "content": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]},
        {"role": "user", "content": [{"type": "text", "text": "look"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw"}}]},
        {"role": "assistant", "content": "calling", "tool_calls": [
            {"id": "t1", "type": "function", "function": {"name": "f", "arguments": '{"b": 1, "a": 2}'}}]},
        {"role": "tool", "tool_call_id": "t1", "content": "Error: gone"},
        {"role": "user", "content": "and now?"},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}}],
    "tool_choice": "required",
    "parallel_tool_calls": False,
    "stop": ["END"],
    "temperature": 0.5,
    "top_k": 3,
    "user": "u7",
}  # fmt: skip


def test_a_message_of_anthropic_reaches_the_model_field_by_field(servers: tuple[Chats, Chats], tmp_path: Path) -> None:
    server, _ = servers
    call = {"id": "c9", "type": "function", "function": {"name": "f", "arguments": '{"a": 1.10}'}}
    server.answer = lambda _: completion("hm", "tool_calls", tool_calls=[call], reasoning_content="thought")
    config = f"models: {{m: {model(server)}}}\nroutes: {{default: {{policy: m}}}}\nkeys: [{{key: a-clients-own-key}}]\n"
    with gateway(tmp_path, config) as handle:
        reply = post(handle.url, "/v1/messages", ASKED, x_api_key="a-clients-own-key")
        assert json.loads(server.asked[0]) == WANTED
        assert reply.json == {
            "id": "c1", "type": "message", "role": "assistant", "model": "upstreams-own",
            "content": [
                {"type": "thinking", "thinking": "thought", "signature": ""}, {"type": "text", "text": "hm"},
                {"type": "tool_use", "id": "c9", "name": "f", "input": {"a": 1.10}},
            ],
            "stop_reason": "tool_use", "stop_sequence": None,
            "usage": {"input_tokens": 5, "cache_read_input_tokens": 0, "output_tokens": 2},
        }  # fmt: skip
        assert b'"input":{"a": 1.10}' in reply.body
        assert reply.headers["request-id"] == reply.headers["x-rheostat-request-id"]
        refused = post(handle.url, "/v1/messages", ASKED)
        assert (refused.status, refused.json["type"], refused.json["error"]["type"]) == (
            401,
            "error",
            "authentication_error",
        )
        server.answer = lambda _: (429, b"{}")
        busy = post(handle.url, "/v1/messages", ASKED, x_api_key="a-clients-own-key")
        assert (busy.status, busy.json["error"]["type"]) == (503, "overloaded_error")
        assert int(busy.headers["retry-after"]) >= 1


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "thinking.type"),
        ({"container": "c"}, "container"),
        ({"metadata": {"user_id": "u", "other": 1}}, "metadata.other"),
        ({"tools": [{"type": "web_search_20250305", "name": "w", "max_uses": 1}]}, "tools[0].type"),
        ({"tools": [{"name": "f", "input_schema": {}, "defer_loading": True}]}, "tools[0].defer_loading"),
        ({"messages": [{"role": "user", "content": [{"type": "search_result"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "x", "citations": []}]}]},
         "messages[0].content[0].citations"),
        ({"messages": [{"role": "assistant", "content": [{"type": "thinking", "thinking": "x", "signature": "s"}]}]},
         "messages[0].content[0].signature"),
        ({"messages": []}, "messages"),
        ({"service_tier": "standard_only"}, "service_tier"),
    ],
)  # fmt: skip
def test_what_cannot_be_said_in_openais_form_is_refused_by_name(more: dict[str, Any], field: str) -> None:
    with pytest.raises(BadRequest) as refused:
        MessagesFace().read(json.dumps({**ASKED, **more}).encode())
    assert field in str(refused.value)
    assert refused.value.param == field


def events_of(stream: bytes) -> list[dict[str, Any]]:
    found = []
    for event in stream.decode().split("\n\n"):
        if event:
            name, data = event.split("\n")
            found.append(json.loads(data.removeprefix("data: ")))
            assert name == f"event: {found[-1]['type']}"
    return found


def put_together(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return each block's kind and content, and hold the events to their grammar."""
    assert events[0]["type"] == "message_start"
    assert [event["type"] for event in events[-2:]] == ["message_delta", "message_stop"]
    blocks: dict[int, list[str]] = {}
    kinds, done = {}, set()
    for event in events[1:-2]:
        index = event["index"]
        if event["type"] == "content_block_start":
            assert index == len(blocks)
            blocks[index], kinds[index] = [], event["content_block"]["type"]
        elif event["type"] == "content_block_delta":
            assert index not in done
            blocks[index].append(next(value for name, value in event["delta"].items() if name != "type"))
        else:
            assert event["type"] == "content_block_stop"
            done.add(index)
    assert done == set(blocks)
    return [(kinds[index], "".join(said)) for index, said in blocks.items()]


def call(index: int, arguments: str, **more: Any) -> bytes:
    told = {"index": index, **more, "function": {"arguments": arguments, **({"name": "f"} if more else {})}}
    return chunk({"tool_calls": [told]})


def test_a_stream_in_anthropics_events(servers: tuple[Chats, Chats], tmp_path: Path) -> None:
    server, _ = servers
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 6}}
    server.answer = lambda _: [
        chunk({"role": "assistant", "content": ""}), chunk({"reasoning_content": "hm"}), chunk({"content": "模"}),
        chunk({"content": "型"}), call(0, '{"a":', id="c0"), call(1, "{", id="c1"), call(0, "1}"), call(1, "}"),
        chunk({}, "tool_calls"), chunk(None, usage=usage), b"data: [DONE]\n\n",
    ]  # fmt: skip
    with gateway(tmp_path, f"models: {{m: {model(server)}}}\nroutes: {{default: {{policy: m}}}}\n") as handle:
        events = events_of(post(handle.url, "/v1/messages", {**ASKED, "stream": True}).body)
        assert put_together(events) == [("thinking", "hm"), ("text", "模型"), ("tool_use", '{"a":1}'), ("tool_use", "{}")]
        assert events[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
        assert events[-2]["usage"] == {"input_tokens": 3, "cache_read_input_tokens": 6, "output_tokens": 4}
        assert json.loads(server.asked[0])["stream_options"] == {"include_usage": True}
        server.answer = lambda _: [chunk({"content": "half"})]
        broken = events_of(post(handle.url, "/v1/messages", {**ASKED, "stream": True}).body)
        assert [event["type"] for event in broken] == [
            "message_start",
            "content_block_start",
            "content_block_delta",
            "error",
        ]
        server.answer = lambda _: completion("whole", "length")
        whole = events_of(post(handle.url, "/v1/messages", {**ASKED, "stream": True}).body)
        assert put_together(whole) == [("text", "whole")]
        assert whole[-2]["delta"]["stop_reason"] == "max_tokens"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=8,
)
NAMES = st.sampled_from([
    "model", "messages", "prompt", "input", "max_tokens", "system", "tools", "tool_choice", "stream", "stream_options", "n",
    "metadata", "stop_sequences", "response_format", "logprobs", "output_config", "temperature", "role", "content", "type",
])  # fmt: skip
GOOD = {
    "model": "default", "max_tokens": 3, "messages": [{"role": "user", "content": "x"}], "prompt": "x", "input": ["x", "y"],
}  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(FACES), st.dictionaries(NAMES, JSON, max_size=5), st.booleans())
def test_a_hostile_body_is_read_with_every_field_or_refused(face: Face, more: dict[str, Any], good: bool) -> None:
    sent = {**({**GOOD} if good else {}), **more}
    if isinstance(face, MessagesFace):
        sent = {name: value for name, value in sent.items() if name not in ("prompt", "input")}
    try:
        row, _ = face.read(json.dumps(sent).encode())
    except BadRequest:
        return
    row.asks("model"), row.asks("stream"), row.choices, row.question, row.spoken
    face.pieces(row, "id", 1) if isinstance(row.asks("model"), str) else None
    if not isinstance(face, MessagesFace):
        assert {name: msgspec.json.decode(value) for name, value in row.fields.items()} == sent


@pytest.mark.parametrize("face", FACES, ids=lambda face: face.page)
def test_no_body_is_a_fault_of_ours(face: Face, servers: tuple[Chats, Chats], tmp_path: Path) -> None:
    server, other = servers
    server.answer = other.answer = lambda _: b'{"choices": [null], "data": {}}'
    deep = "[" * 900 + "]" * 900
    bodies = [b"", b"\xff", b"[]", b"null", b"{", b'{"model":"\\ud83d"}', json.dumps(GOOD).encode()]
    for name in ("stream", "stream_options", "model", "metadata", "n", "tools", "response_format", "unknown", "logprobs"):
        bodies.append(json.dumps({**GOOD, name: 0}).replace(f'"{name}": 0', f'"{name}": {deep}').encode())
        bodies.append(json.dumps({**GOOD, name: 0}).replace(f'"{name}": 0', f'"{name}": "\\ud83d"').encode())
        bodies.append(json.dumps({**GOOD, name: {"include_usage": [1]}}).encode())
    with gateway(tmp_path, two(server, other, "serves: [chat, completion, embedding]")) as handle:
        for body in bodies:
            reply = post(handle.url, face.page, body)
            assert reply.status in (400, 404, 502, 503), (reply.status, body[:200], reply.body)
            assert reply.json["error"]["message"]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(["content", "reasoning_content", "refusal", "tool_calls", "role"]),
                                JSON, max_size=3), max_size=5), JSON, JSON)  # fmt: skip
def test_whatever_a_model_says_becomes_events_by_their_grammar(deltas: list[Any], usage: Any, finish: Any) -> None:
    events = MessageEvents("id", "m", ("END",))
    said = b"".join(events.piece(Piece("x", chunk=chunk(delta, usage=usage))) for delta in deltas)
    put_together(events_of(said + events.piece(Piece("", chunk=chunk({}, finish))) + events.end()))
    message = {name: value for delta in deltas for name, value in delta.items()}
    whole = {"choices": [{"message": message, "finish_reason": finish}], "usage": usage}
    assert json.loads(message_of(json.dumps(whole).encode(), ()))["type"] == "message"
