"""Streamed conversations: every cut of a recorded stream, every end, clients that leave, answers that come whole."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from chat_servers import Chats, ask, chunk, completion, gateway, hello, model, record
from hypothesis import given, settings
from hypothesis import strategies as st

from rheostat.backends.chat_completion import read_completion
from rheostat.backends.chat_relay import relayed
from rheostat.backends.chat_whole import Whole
from rheostat.errors import ModelError
from rheostat.pool.backend import Piece
from rheostat.types import Prediction

OPENING = chunk({"role": "assistant", "content": ""})
TEXTS = ("模型", "😀 a", "\u2028b", "\u00e9\\n")
END = b"data: [DONE]\n\n"
WORDS = "def said(row):\n    row['messages'].clear()\n    return {'label': 'words', 'output': 'two words'}\n"
RECORDED = OPENING + b": note\n\n" + b"".join(chunk({"content": text}) for text in TEXTS) + chunk({}, "stop") + END
CALLS = (
    chunk({"role": "assistant", "content": None}),
    chunk({"tool_calls": [{"index": 0, "id": "c0", "type": "function", "function": {"name": "f", "arguments": ""}}]}),
    chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"a":'}}]}),
    chunk({"tool_calls": [{"index": 1, "id": "c1", "type": "function", "function": {"name": "g", "arguments": "{"}}]}),
    chunk({"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}, {"index": 1, "function": {"arguments": "}"}}]}),
    chunk({}, "tool_calls"),
)


async def source(parts: Sequence[bytes]) -> AsyncGenerator[bytes]:
    for part in parts:
        yield part
    # and the connection is closed


def pieces_of(*parts: bytes, choices: int = 1, usage: bool = False) -> tuple[list[Piece], ModelError | None]:
    found: list[Piece] = []

    async def go() -> ModelError | None:
        try:
            async for piece in relayed(source([part for part in parts if part]), read_completion, choices, usage=usage):
                found.append(piece)
        except ModelError as error:
            return error
        return None

    return found, asyncio.run(go())


def without_notes(stream: bytes) -> bytes:
    return stream.replace(b": note\n\n", b"").removesuffix(END)


def test_every_cut_in_two_gives_the_same_bytes() -> None:
    for cut in range(len(RECORDED) + 1):
        pieces, error = pieces_of(RECORDED[:cut], RECORDED[cut:])
        assert error is None
        assert b"".join(piece.chunk for piece in pieces) == without_notes(RECORDED), cut
        assert "".join(piece.text for piece in pieces) == "".join(TEXTS)
        assert pieces[0].chunk.startswith(OPENING)
        assert (pieces[-1].finish, pieces[-1].text) == ("stop", "")
        assert isinstance(pieces[-1].reply, Prediction)
        assert pieces[-1].reply.label == "".join(TEXTS)


def test_every_end_in_the_middle_is_told_and_nothing_comes_twice() -> None:
    finished = RECORDED.index(b'"stop"')
    for end in range(len(RECORDED)):
        pieces, error = pieces_of(RECORDED[:end])
        sent = b"".join(piece.chunk for piece in pieces)
        assert without_notes(RECORDED).startswith(sent), end
        if error is None:
            assert end > finished
            assert sent == without_notes(RECORDED)
        else:
            assert error.kind == "reset", (end, str(error))
            assert end < finished + 40
            assert all(piece.finish is None for piece in pieces)


def test_garbage_at_every_place_is_told_and_what_went_out_before_is_the_beginning_of_the_answer() -> None:
    finished = RECORDED.index(b'"stop"')
    for place in range(finished):
        for garbage in (b"\xff\xfe\n\n", b"\n\ndata: {]\n\n", b"\x00" * 9, b"HTTP/1.1 500 Oh\r\n\r\n"):
            pieces, error = pieces_of(RECORDED[:place], garbage)
            assert error is not None, (place, garbage)
            sent = b"".join(piece.chunk for piece in pieces)
            assert without_notes(RECORDED).startswith(sent), (place, garbage)
            assert "".join(TEXTS).startswith("".join(piece.text for piece in pieces))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, len(RECORDED)), max_size=12), st.booleans())
def test_any_cuts_and_line_ends_give_the_same_text(cuts: list[int], carriage: bool) -> None:
    places = [0, *sorted(cuts), len(RECORDED)]
    parts = [RECORDED[start:end] for start, end in pairwise(places)]
    if carriage:
        parts = [part.replace(b"\n", b"\r\n") for part in parts]
    pieces, error = pieces_of(*parts)
    assert error is None
    assert b"".join(piece.chunk for piece in pieces) == without_notes(RECORDED)


def test_calls_of_tools_go_on_as_they_came_and_are_put_together() -> None:
    pieces, error = pieces_of(*CALLS, END)
    assert error is None
    assert pieces[0].chunk == CALLS[0] + CALLS[1]
    assert b"".join(piece.chunk for piece in pieces) == b"".join(CALLS)
    reply = pieces[-1].reply
    assert isinstance(reply, Prediction)
    assert reply.label == "tool_calls"
    (choice,) = json.loads(reply.output)["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert [(call["id"], call["function"]) for call in choice["message"]["tool_calls"]] == [
        ("c0", {"name": "f", "arguments": '{"a":1}'}), ("c1", {"name": "g", "arguments": "{}"}),
    ]  # fmt: skip


def test_the_usage_and_a_second_choice_are_waited_for() -> None:
    usage = chunk(None, usage={"total_tokens": 9})
    pieces, error = pieces_of(OPENING, chunk({"content": "a"}), chunk({}, "stop"), usage, END, usage=True)
    assert error is None
    assert [piece.chunk for piece in pieces[-2:]] == [usage, b""]
    assert isinstance(pieces[-1].reply, Prediction)
    assert json.loads(pieces[-1].reply.output)["usage"] == {"total_tokens": 9}
    second = OPENING.replace(b'"index": 0', b'"index": 1'), chunk({"content": "b"}).replace(b'"index": 0', b'"index": 1')
    ends = chunk({}, "stop"), chunk({}, "stop").replace(b'"index": 0', b'"index": 1')
    both = (OPENING, chunk({"content": "a"}), ends[0], *second, ends[1])
    pieces, error = pieces_of(*both, choices=2)
    assert error is None
    assert b"".join(piece.chunk for piece in pieces) == b"".join(both)
    assert isinstance(pieces[-1].reply, Prediction)
    assert [each["message"]["content"] for each in json.loads(pieces[-1].reply.output)["choices"]] == ["a", "b"]
    assert pieces_of(*both[:-1], choices=2)[1] is not None


def test_chunks_of_any_form_are_put_together_without_an_error() -> None:
    values = st.recursive(st.none() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3)
                          | st.dictionaries(st.sampled_from(["index", "delta", "content", "tool_calls", "logprobs"]), inner),
                          max_leaves=12)  # fmt: skip

    @settings(max_examples=150, deadline=None)
    @given(st.lists(st.fixed_dictionaries({"choices": st.lists(values, max_size=2)}), max_size=4))
    def put_together(chunks: list[dict[str, Any]]) -> None:
        whole = Whole()
        for each in chunks:
            whole.add(each)
        assert json.loads(whole.body())["object"] == "chat.completion"

    put_together()


@pytest.fixture
def servers() -> Iterator[tuple[Chats, Chats]]:
    pair = Chats(), Chats()
    yield pair
    for server in pair:
        server.close()


def two(servers: tuple[Chats, Chats], more: str = "") -> str:
    one, other = servers
    return (
        f"models: {{one: {model(one, 'peers: [other], breaker: {failureThreshold: 0}' + more)}, other: {model(other)}}}\n"
        "routes: {default: {policy: one}}\n"
    )


def stream(**more: Any) -> dict[str, Any]:
    return hello(stream=True, **more)


def test_what_the_client_gets_is_what_the_model_sent(servers: tuple[Chats, Chats], tmp_path: Path) -> None:
    servers[0].answer = lambda _: [RECORDED[:70], RECORDED[70:95], RECORDED[95:]]
    with gateway(tmp_path, two(servers)) as handle:
        reply = ask(handle.url, stream(stream_options={"include_usage": False}))
        assert reply.status == 200
        assert reply.headers["content-type"].startswith("text/event-stream")
        assert reply.body == without_notes(RECORDED) + END
        kept = record(tmp_path, reply)
        assert (kept.label, kept.status) == ("stop", "ok")
        assert 1 <= kept.outcomes[0].attempts[0].pieces <= 4
    asked = json.loads(servers[0].asked[0])
    assert (asked["stream"], asked["stream_options"]) == (True, {"include_usage": False})


def test_a_failure_before_the_first_text_leaves_no_trace(servers: tuple[Chats, Chats], tmp_path: Path) -> None:
    one, other = servers
    busy = b'data: {"error": {"message": "overloaded", "code": 503}}\n\n'
    other.answer = lambda _: [OPENING, chunk({"content": "other"}), chunk({}, "stop"), END]
    with gateway(tmp_path, two(servers)) as handle:
        blank = [OPENING, chunk({"content": " \n"}), chunk({}, "stop"), END]
        for said in (
            blank, [OPENING, b": still there\n\n", busy], [OPENING], [OPENING, chunk({}, "stop"), END], [b"data: x\n\n"],
            (500, b"{}"), [b"event: error\n" + busy],
        ):  # fmt: skip
            one.answer = lambda _, said=said: said
            assert ask(handle.url, stream()).body == OPENING + chunk({"content": "other"}) + chunk({}, "stop") + END, said
        other.answer = one.answer
        failed = ask(handle.url, stream())
        assert failed.status == 502
        assert failed.json["error"]["type"] == "server_error"


def test_a_failure_after_it_is_told_and_nobody_else_speaks(servers: tuple[Chats, Chats], tmp_path: Path) -> None:
    one, other = servers

    def breaking(tail: bytes) -> Iterator[bytes]:
        yield OPENING + chunk({"content": "a"}) + chunk({"content": "b"})
        time.sleep(0.1)  # a broken event that comes in the same moment as the first text is a failure before it
        yield tail

    with gateway(tmp_path, two(servers)) as handle:
        for tail in (b"", b'data: {"error": {"message": "overloaded"}}\n\n', b"data: no json\n\n", b"data: {\xff}\n\n"):
            one.answer = lambda _, tail=tail: breaking(tail)
            reply = ask(handle.url, stream())
            *said, error = reply.events
            assert [json.loads(each)["choices"][0]["delta"].get("content") for each in said] == ["", "a", "b"]
            assert set(json.loads(error)["error"]) == {"message", "type", "param", "code"}
            assert record(tmp_path, reply).status == "error"
    assert not other.asked


def test_an_answer_that_is_wanted_whole_first_comes_as_one_chunk(servers: tuple[Chats, Chats], tmp_path: Path) -> None:
    weak, strong = servers
    calls = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    weak.answer = lambda body: (
        completion("weak", logprobs=[-0.01])
        if "easy" in str(body)
        else completion(None, "tool_calls", [-2.0], tool_calls=calls)
    )
    strong.answer = lambda _: [OPENING, chunk({"content": "strong"}), chunk({}, "stop"), END]
    config = f"""
models:
  weak: {model(weak, "confidence: mean_logprob")}
  strong: {model(strong)}
  canned: {{backend: template, label: canned}}
routes:
  default: {{policy: {{cascade: {{stages: [weak, strong], threshold: 0.5}}}}}}
  alone: {{policy: weak}}
  canned: {{policy: canned}}
"""
    with gateway(tmp_path, config) as handle:
        easy = ask(
            handle.url, {**stream(stream_options={"include_usage": True}), "messages": [{"role": "user", "content": "easy"}]}
        )
        first, last, usage, done = easy.events
        assert json.loads(first)["choices"] == [
            {"index": 0, "delta": {"role": "assistant", "content": "weak"}, "logprobs": None, "finish_reason": None}
        ]
        assert json.loads(last)["choices"][0]["finish_reason"] == "stop"
        assert json.loads(usage)["usage"]["total_tokens"] == 7
        assert done == "[DONE]"
        assert easy.headers["x-rheostat-model"] == "weak"
        # The last stage's word counts whatever it is, so it is streamed.
        assert ask(handle.url, stream()).body == OPENING + chunk({"content": "strong"}) + chunk({}, "stop") + END
        assert json.loads(weak.asked[0]).get("stream") is None
        called = json.loads(ask(handle.url, {**stream(), "model": "alone"}).events[0])  # it does not stream, though asked to
        assert called["choices"][0]["delta"]["tool_calls"] == [{"index": 0, **calls[0]}]
        assert json.loads(ask(handle.url, {**stream(), "model": "canned"}).events[0])["choices"][0]["delta"] == {
            "role": "assistant",
            "content": "canned",
        }


def test_a_client_that_leaves_stops_the_model(servers: tuple[Chats, Chats], tmp_path: Path) -> None:
    one, other = servers

    def endless() -> Iterator[bytes]:
        yield OPENING
        for number in range(2000):
            yield chunk({"content": f"{number} "})
            time.sleep(0.005)

    one.answer = lambda _: endless()
    with gateway(tmp_path, two(servers)) as handle:
        body = json.dumps(stream()).encode()
        with socket.create_connection(("127.0.0.1", handle.server.port)) as client:
            client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
            seen = b""
            while b'"10 "' not in seen:
                seen += client.recv(4096)
        assert one.gone.wait(3.0)
    assert not other.asked


def test_a_stall_before_the_first_text_is_given_up(servers: tuple[Chats, Chats], tmp_path: Path) -> None:
    one, other = servers

    def stalls() -> Iterator[bytes]:
        yield OPENING
        time.sleep(1.5)
        yield chunk({"content": "late"})

    one.answer = lambda _: stalls()
    other.answer = lambda _: [OPENING, chunk({"content": "other"}), chunk({}, "stop"), END]
    with gateway(tmp_path, two(servers, ", stream: {first: 200ms}")) as handle:
        assert b"other" in ask(handle.url, stream()).body


def test_a_stall_after_it_ends_the_stream_with_an_error(servers: tuple[Chats, Chats], tmp_path: Path) -> None:
    one, other = servers

    def stalls() -> Iterator[bytes]:
        yield OPENING + chunk({"content": "a"})
        time.sleep(1.5)
        yield chunk({"content": "late"})

    one.answer = lambda _: stalls()
    with gateway(tmp_path, two(servers, ", stream: {gap: 200ms}")) as handle:
        reply = ask(handle.url, stream())
        *said, error = reply.events
        assert [json.loads(each)["choices"][0]["delta"]["content"] for each in said] == ["", "a"]
        assert json.loads(error)["error"]["type"] == "server_error"
        assert record(tmp_path, reply).outcomes[0].failure is not None
    assert not other.asked


def test_a_model_of_another_kind_answers_a_stream(tmp_path: Path) -> None:
    (tmp_path / "chat_words.py").write_text(WORDS)
    config = "models: {m: {backend: python, callable: 'chat_words:said', each: true}}\nroutes: {default: {policy: m}}\n"
    with gateway(tmp_path, config) as handle:
        reply = ask(handle.url, stream())
        assert [json.loads(event)["choices"][0]["delta"].get("content") for event in reply.events[:-1]] == [
            "two words",
            None,
        ]
        assert reply.events[-1] == "[DONE]"
