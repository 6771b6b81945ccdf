"""What a model cannot take is never sent to it: pictures, tools, response formats, and conversations that are too long."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from bench import llama
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from rheostat.backends.context_words import says_too_long
from rheostat.backends.upstream import failure_of
from rheostat.config import load_config
from rheostat.engine.passing import unfit
from rheostat.errors import ConfigError
from rheostat.resilience.ladder import Link
from rheostat.types import Chat, Context, Request, tokens_of
from rheostat.types.ability import needs_of
from tests.chat.chat_servers import Chats, ask, completion, gateway, hello, model, record

TOOLS = [{"type": "function", "function": {"name": "f", "description": "d" * 40, "parameters": {"type": "object"}}}]
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 4000}}
SOUND = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
FILE = {"type": "file", "file": {"file_data": "AAAA"}}
CALL = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]}
RESULT = {"role": "tool", "tool_call_id": "1", "content": "7"}
ASK = {"role": "user", "content": "x"}


def chat(**fields: Any) -> Chat:
    return Chat({name: Raw(msgspec.json.encode(value)) for name, value in {"messages": [ASK], **fields}.items()})


@pytest.fixture
def servers() -> Iterator[tuple[Chats, Chats]]:
    pair = Chats(), Chats()
    yield pair
    for server in pair:
        server.close()


@pytest.mark.parametrize(
    ("fields", "needs"),
    [
        ({}, set()),
        ({"messages": [{"role": "user", "content": [PICTURE, {"type": "text", "text": "a"}]}]}, {"images"}),
        ({"messages": [{"role": "user", "content": [PICTURE, SOUND, FILE]}, ASK]}, {"images", "audio", "files"}),
        ({"tools": TOOLS}, {"tools"}),
        ({"tools": []}, set()),
        ({"functions": [{"name": "f"}]}, {"tools"}),
        ({"messages": [ASK, CALL, RESULT]}, {"tools"}),
        ({"messages": [RESULT]}, {"tools"}),
        ({"response_format": {"type": "json_object"}}, {"json_object"}),
        ({"response_format": {"type": "json_schema", "json_schema": {}}, "tools": TOOLS}, {"json_schema", "tools"}),
        ({"response_format": {"type": "text"}}, set()),
        ({"response_format": {"type": "grammar"}}, set()),
        ({"messages": [{"role": "user", "content": [{"type": []}, 7, {}]}]}, set()),
    ],
)
def test_what_a_conversation_needs(fields: Any, needs: set[str]) -> None:
    assert needs_of(chat(**fields)) == needs


def test_only_a_conversation_needs_anything_and_what_is_not_declared_is_not_held_against_a_model() -> None:
    assert needs_of({"images": True, "messages": [], "format": "json_schema", "tools": True}) == frozenset()
    context = Context(Request(id="r", data=chat(tools=TOOLS)))
    assert unfit(Link(), context) is None
    assert context.memo == {}  # nothing was looked at
    assert unfit(Link(can=("tools",)), context) is None
    told = unfit(Link(can=("images",)), context)
    assert told is not None
    assert (told.kind, told.message) == ("unsupported", "passed over: it takes no tools")


def test_a_model_that_cannot_is_neither_chosen_nor_fallen_back_to(servers: tuple[Chats, Chats], tmp_path: Path) -> None:
    small, large = servers
    can = "can: [], lighter: large, breaker: {failureThreshold: 1}"
    config = (
        f"models: {{small: {model(small, can)}, large: {model(large, 'can: [images, tools], peers: [small]')}}}\n"
        "routes: {default: {policy: small}, big: {policy: large}}\n"
    )
    with gateway(tmp_path, config) as handle:
        assert ask(handle.url, hello()).headers["x-rheostat-model"] == "small"
        tools = ask(handle.url, hello(tools=TOOLS))
        assert tools.headers["x-rheostat-model"] == "large"
        kept = record(tmp_path, tools)
        assert [(o.model, o.failure and o.failure.kind, len(o.attempts)) for o in kept.outcomes] == [
            ("small", "unsupported", 0), ("large", None, 1)]  # fmt: skip
        streamed = ask(handle.url, hello([PICTURE], stream=True))  # type: ignore[arg-type]
        assert streamed.status == 200
        large.answer = lambda _: (500, b"{}")
        failed = ask(handle.url, {**hello(tools=TOOLS), "model": "big"})
        assert failed.status == 502  # and small, its peer, was not asked
        assert len(small.asked) == 1
        assert ask(handle.url, hello()).headers["x-rheostat-model"] == "small"  # its breaker knows of nothing


def test_where_nobody_can_the_client_hears_what_is_missing(servers: tuple[Chats, Chats], tmp_path: Path) -> None:
    small, large = servers
    config = (
        f"models: {{small: {model(small, 'can: []')}, large: {model(large, 'can: [images]')}}}\n"
        "routes: {default: {policy: {cascade: {stages: [small, large], threshold: 0.9}}}}\n"
        "keys: [{key: forcing-client-key-1, may_force: true}]\n"
    )
    key = {"authorization": "Bearer forcing-client-key-1"}
    with gateway(tmp_path, config) as handle:
        for stream in (False, True):
            refused = ask(handle.url, hello([PICTURE], tools=TOOLS, stream=stream), key)  # type: ignore[arg-type]
            assert refused.status == 400
            error = refused.json["error"]
            assert (error["type"], error["code"]) == ("invalid_request_error", "unsupported")
            assert "small: it takes no images and no tools" in error["message"]
            assert "large: it takes no tools" in error["message"]
        assert record(tmp_path, refused).status == "rejected"
        forced = ask(handle.url, {**hello(tools=TOOLS), "model": "large"}, key)
        assert (forced.status, forced.json["error"]["code"]) == (400, "unsupported")
    assert not small.asked
    assert not large.asked


WORDS = {
    "openai": {"error": {"message": "This model's maximum context length is 8192 tokens. However, your messages resulted in "
                         "9001 tokens. Please reduce the length of the messages.", "code": "context_length_exceeded"}},
    "vllm": {"object": "error", "message": "This model's maximum context length is 4096 tokens. However, you requested 5000 "
             "tokens (4900 in the messages, 100 in the completion).", "type": "BadRequestError", "code": 400},
    "sglang": {"object": "error", "type": "BadRequest", "code": 400,
               "message": "The input (8300 tokens) is longer than the model's context length (8192 tokens)."},
    "llama.cpp": {"error": {"code": 400, "message": "the request exceeds the available context size, try increasing it",
                            "type": "exceed_context_size_error", "n_prompt_tokens": 700}},
    "llama.cpp by words": {"error": {"message": "request (700 tokens) exceeds the available context size (512 tokens)"}},
    "llama-cpp-python": {"error": {"message": "Requested tokens (5000) exceed context window of 4096", "code": 400}},
    "tgi": {"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 and 20",
            "error_type": "validation"},
    "tgi inputs": {"error": "Input validation error: `inputs` must have less than 1024 tokens. Given: 1300"},
    "anthropic": {"type": "error", "error": {"type": "invalid_request_error",
                                             "message": "prompt is too long: 200251 tokens > 200000 maximum"}},
    "gemini": [{"error": {"code": 400, "message": "The input token count (1200000) exceeds the maximum number of tokens "
                          "allowed (1048575).", "status": "INVALID_ARGUMENT"}}],
    "mistral": {"object": "error", "message": "Prompt contains 40000 tokens and 0 draft tokens, too large for model with "
                "32768 maximum context length"},
    "cohere": {"message": "too many tokens: total number of tokens in the prompt cannot exceed 4081"},
    "bedrock": {"message": "Input is too long for requested model."},
    "groq": {"error": {"message": "Please reduce the length of the messages or completion.", "type": "invalid_request"}},
    "xai": {"error": "This model's maximum prompt length is 131072 but the request contains 537812 tokens."},
    "ollama": {"error": {"message": "the input length exceeds the context length"}},
    "fastapi": {"detail": "This model's maximum context length is 2048 tokens."},
}  # fmt: skip


@pytest.mark.parametrize("who", WORDS)
@pytest.mark.parametrize("status", [400, 422])
def test_a_context_error_is_known_in_whatever_words(who: str, status: int) -> None:
    assert failure_of(status, json.dumps(WORDS[who]).encode(), "told", None).kind == "input_too_large"


@pytest.mark.parametrize(
    "said",
    [
        {"error": {"message": "temperature must be at most 2", "code": "invalid_value"}},
        {"error": {"message": "context_length_exceeded, too long"}},
        {"error": {"message": "the value of `stop` is too long"}},
        {"error": {"message": "unsupported parameter", "param": "maximum context length"}},
        {"error": {"message": "bad", "echo": "This model's maximum context length is 5"}},
        {"error": {"message": "maximum length of a tool's name is 64"}},
        [], "", 7, None, {"error": []}, {"error": {"code": ["context_length_exceeded"]}},
    ],
)  # fmt: skip
def test_another_refusal_is_not_taken_for_one(said: Any) -> None:
    assert failure_of(400, json.dumps(said).encode(), "told", None).kind == "input_refused"


@given(st.binary(max_size=200))
def test_no_answer_of_a_server_is_too_odd_to_be_looked_at(content: bytes) -> None:
    assert says_too_long(content) in (True, False)


def test_a_refused_length_leads_to_a_longer_model_and_harms_nobody(servers: tuple[Chats, Chats], tmp_path: Path) -> None:
    small, large = servers
    tiny = Chats()
    small.answer = lambda _: (400, json.dumps(WORDS["vllm"]).encode())
    config = (
        f"models: {{small: {model(small, 'max_input: 4000, lighter: tiny, breaker: {failureThreshold: 1}')},\n"
        f"  tiny: {model(tiny, 'max_input: 2000, cost: 9')}, large: {model(large, 'max_input: 100000')},\n"
        f"  other: {model(tiny, 'max_input: 8000, cost: 99')}}}\n"
        "routes: {default: {policy: small}, short: {policy: small, models: [small, tiny]}}\n"
    )
    with gateway(tmp_path, config) as handle:
        for _ in range(3):
            moved = ask(handle.url, hello())
            assert (moved.status, moved.headers["x-rheostat-model"]) == (200, "large")
        assert [(o.model, o.failure and o.failure.kind) for o in record(tmp_path, moved).outcomes] == [
            ("small", "input_too_large"), ("large", None)]  # fmt: skip
        assert len(small.asked) == 3  # no breaker has opened
        nobody = ask(handle.url, {**hello(), "model": "short"})
        assert (nobody.status, nobody.json["error"]["code"]) == (413, "context_length_exceeded")
        assert not tiny.asked  # it takes less than the one that refused
    tiny.close()


def test_a_refused_length_in_a_stream_leads_to_a_longer_model(servers: tuple[Chats, Chats], tmp_path: Path) -> None:
    small, large = servers
    small.answer = lambda _: (400, json.dumps(WORDS["anthropic"]).encode())
    large.answer = lambda body: [
        b'data: {"choices":[{"index":0,"delta":{"content":"long"},"finish_reason":"stop"}]}\n\n', b"data: [DONE]\n\n",
    ] if body.get("stream") else completion("long")  # fmt: skip
    config = (
        f"models: {{small: {model(small)}, large: {model(large)}}}\n"
        "routes: {default: {policy: {rules: [{when: 'true', use: small}]}}}\n"
    )
    with gateway(tmp_path, config) as handle:
        streamed = ask(handle.url, hello(stream=True))
        assert json.loads(streamed.events[0])["choices"][0]["delta"]["content"] == "long"
        assert streamed.events[-1] == "[DONE]"


def test_what_counts_as_size() -> None:
    bare = tokens_of(chat())
    assert tokens_of(chat(messages=[{"role": "user", "content": [PICTURE, {"type": "text", "text": "x"}]}])) == bare + 800
    assert tokens_of(chat(tools=TOOLS)) > bare + 20
    assert tokens_of(chat(response_format={"type": "json_schema", "json_schema": {"schema": {"a": "b" * 400}}})) > bare + 100
    assert tokens_of(chat(messages=[ASK, CALL, RESULT])) > bare + 10
    assert tokens_of(chat(messages=[ASK] * 10)) == 9 * bare


@pytest.mark.skipif(not llama.installed(), reason=llama.WANTED)
def test_the_estimate_is_near_what_a_real_model_counts_and_its_refusal_is_understood(tmp_path: Path) -> None:
    prose = "The river runs past the old mill, and nobody in the village remembers who built it. " * 6
    cases: list[dict[str, Any]] = [
        {"messages": [{"role": "system", "content": "You are brief."}, {"role": "user", "content": prose}]},
        {"messages": [{"role": "user", "content": prose[:80]}, {"role": "assistant", "content": prose[:90]}] * 3 + [ASK]},
    ]
    with llama.served(context=768) as (root, _):
        for case in cases:
            with gateway(
                tmp_path,
                f"models: {{m: {{backend: chat, base_url: '{root}/v1', model: m}}}}\nroutes: {{default: {{policy: m}}}}\n",
            ) as handle:
                counted = ask(handle.url, {"model": "default", "max_tokens": 1, **case}).json["usage"]["prompt_tokens"]
                assert 0.67 * counted <= tokens_of(chat(**case)) <= 1.5 * counted
        with (
            closing(Chats()) as large,
            gateway(
                tmp_path,
                f"models: {{m: {{backend: chat, base_url: '{root}/v1', model: m}}, large: {model(large)}}}\n"
                "routes: {default: {policy: m}}\n",
            ) as handle,
        ):
            long = {"model": "default", "messages": [{"role": "user", "content": prose * 12}]}
            assert ask(handle.url, long).headers["x-rheostat-model"] == "large"


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rheostat.yaml"
    path.write_text("models: {m: {backend: template, label: a, can: [tools]}}\nroutes: {default: {policy: m}}\n")
    with pytest.raises(ConfigError, match="`task: chat`"):
        load_config(str(path))
    path.write_text("task: chat\nmodels: {m: {backend: template, label: a, can: [tool]}}\nroutes: {default: {policy: m}}\n")
    with pytest.raises(ConfigError, match="did you mean `tools`"):
        load_config(str(path))
