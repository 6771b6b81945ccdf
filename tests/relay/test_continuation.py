"""Going on with an answer that has begun: no character twice, none lost, over every kind of server."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from relay_servers import begins, event, going_on, scripted

from rheostat.backends.chat import ChatModel
from rheostat.backends.continuing import Seam, seam
from rheostat.errors import ModelError
from rheostat.pool.backend import Piece
from rheostat.types import Chat, Prediction
from rheostat.types.begun import Begun, begun, room_of, stops_of

TOKENS = (
    "The",
    " sea",
    ",",
    " 模",
    "型",
    " says",
    " 😀",
    ".",
    "\n\n",
    "-",
    " one",
    "\n",
    "-",
    " two",
    "\n",
    "    ",
    " code",
)
WHOLE = "".join(TOKENS)


def chat(**more: Any) -> Chat:
    body = {"messages": [{"role": "user", "content": "Go."}], **more}
    return Chat({name: Raw(json.dumps(value).encode()) for name, value in body.items()})


async def heard(url: str, row: Any, continues: str = "prefill") -> list[Piece]:
    backend: Any = ChatModel(base_url=url, model="m", continues=continues).open("")  # type: ignore[arg-type]
    try:
        return [piece async for piece in backend.astream(row, 10.0)]
    finally:
        await backend.aclose()


def whole(pieces: list[Piece]) -> dict[str, Any]:
    reply = pieces[-1].reply
    assert isinstance(reply, Prediction)
    said = json.loads(reply.output)
    assert said["choices"][0]["message"]["content"] == reply.label
    return {**said, "text": reply.label, "finish": said["choices"][0]["finish_reason"]}


def test_cut_anywhere_the_beginning_and_what_is_added_are_the_whole() -> None:
    with scripted(going_on(*TOKENS)) as server:
        for cut in range(len(WHOLE)):
            pieces = asyncio.run(heard(server.url, begun(chat(), WHOLE[:cut])))
            assert WHOLE[:cut] + "".join(piece.text for piece in pieces) == WHOLE, cut
            assert whole(pieces)["text"] == WHOLE
            assert begins(server.asked[-1]) == WHOLE[:cut].rstrip()


@settings(max_examples=300, deadline=None)
@given(st.text(" \n\tab", max_size=12), st.text(" \n\tab", max_size=12), st.integers(1, 4))
def test_the_seam_leaves_out_only_white_space_that_is_there_already(said: str, more: str, size: int) -> None:
    told, tail = seam(said)
    assert told + tail == said
    closing = Seam(tail)
    whole = tail + more  # a model that was not told of the tail writes it, or something else
    fed = "".join(closing.feed(whole[at : at + size]) for at in range(0, len(whole), size))
    assert said + fed == told + tail + more
    other = Seam(tail)
    word = "".join(other.feed(each) for each in "x" + more)
    assert word == "x" + more


@pytest.mark.parametrize("how", ["prefill", "final_message", "prefix", "completions"])
def test_each_kind_of_server_is_asked_in_its_way(how: str) -> None:
    with scripted(lambda _: [" blue", "."]) as server:
        pieces = asyncio.run(
            heard(server.url, begun(chat(temperature=0, logprobs=True, n=2, stop=["x"]), "The sea is ", 7), how)
        )
    assert "".join(piece.text for piece in pieces) == "blue."
    body = server.asked[-1]
    assert (body["stream"], body["temperature"], body["max_tokens"], body["stop"]) == (True, 0, 7, ["x"])
    assert not {"logprobs", "n"} & set(body)
    last = body.get("messages", [{}])[-1]
    if how == "completions":
        assert server.pages == ["/apply-template", "/v1/completions"]
        assert body["prompt"] == "<user>Go.<a>The sea is"
    else:
        assert (last["role"], last["content"]) == ("assistant", "The sea is")
    assert last.get("prefix", False) == (how == "prefix")
    assert body.get("continue_final_message", False) == (how == "final_message")
    assert body.get("add_generation_prompt", True) == (how != "final_message")


def test_a_model_that_was_not_said_to_go_on_is_not_asked_to() -> None:
    with scripted(lambda _: ["x"]) as server:
        with pytest.raises(ModelError, match="continues"):
            asyncio.run(heard(server.url, begun(chat(), "The"), ""))
        assert not server.asked
        assert whole(asyncio.run(heard(server.url, begun(chat(), ""), "")))["text"] == "x"


def test_until_ends_the_answer_and_stops_the_model() -> None:
    def first_sentence(text: str) -> int | None:
        at = text.find(". ")
        return None if at < 0 else at + 1

    tokens = ["One", " two.", " Three", *[" more"] * 5000]
    with scripted(lambda _: tokens) as server:
        pieces = asyncio.run(heard(server.url, begun(chat(), "Zero.", until=first_sentence)))
        said = whole(pieces)
        assert (said["text"], said["finish"]) == ("Zero.One two.", "border")
        assert "".join(piece.text for piece in pieces) == "One two."
        assert said["usage"]["completion_tokens"] == 3
        for _ in range(100):
            if server.cut:
                break
            asyncio.run(asyncio.sleep(0.05))
        assert server.cut == 1


def test_usage_finish_and_an_end_without_a_word() -> None:
    with scripted(lambda _: ["a", "b", "c"]) as server:
        said = whole(asyncio.run(heard(server.url, begun(chat(), "x", 2))))
        assert (said["text"], said["finish"], said["usage"]["completion_tokens"]) == ("xab", "length", 2)
    with scripted(lambda _: []) as server:
        said = whole(asyncio.run(heard(server.url, begun(chat(), "All is said."))))
        assert (said["text"], said["finish"]) == ("All is said.", "stop")
        with pytest.raises(ModelError, match="nothing"):
            asyncio.run(heard(server.url, begun(chat(), "")))
    with scripted(lambda _: ["a"], usage=False) as server:
        assert whole(asyncio.run(heard(server.url, begun(chat(), "x"))))["usage"]["completion_tokens"] == 1


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (b"", "reset"),
        (b"data: {\n\n", "bad_output"),
        (b'data: {"error": {"code": 429, "message": "slow"}}\n\n', "rate_limited"),
    ],
)
def test_what_is_cut_short_or_says_an_error_is_no_answer(end: bytes, kind: str) -> None:
    with scripted(lambda _: ["a", event("b", None) + end]) as server, pytest.raises(ModelError) as raised:
        asyncio.run(heard(server.url, begun(chat(), "x")))
    assert raised.value.kind == kind


def test_what_a_client_asked_for_is_kept() -> None:
    row = chat(max_completion_tokens=30, max_tokens=20, stop="END", metadata={"a": "b"})
    assert (room_of(row), stops_of(row)) == (20, ("END",))
    made = begun(row, "x", 5)
    assert isinstance(made, Begun)
    assert room_of(made) == 5
    assert made.asks("metadata") == {"a": "b"}
    assert (room_of("text"), stops_of("text"), stops_of(chat(stop=["a", "b"]))) == (None, (), ("a", "b"))
    assert begun("only a text", "")["text"] == "only a text"
    with pytest.raises(ValueError, match="no conversation"):
        begun({"a": 1}, "")
