"""What a model gets of a conversation that is too long for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from rheostat.types import tokens_of
from rheostat.types.talk import Talk
from tests.chat.chat_servers import Chats, ask, completion, gateway, hello, model, record
from tests.sessions.test_conversations import S, heard, tell


def raw(role: str, content: str, **more: Any) -> Raw:
    return Raw(msgspec.json.encode({"role": role, "content": content, **more}))


TEXT = st.text(max_size=60)
TURN = st.one_of(
    st.tuples(TEXT, TEXT).map(lambda said: (raw("user", said[0]), raw("assistant", said[1]))),
    TEXT.map(lambda said: (raw("tool", said, tool_call_id="c"), raw("assistant", said))),
)


@given(st.lists(TEXT, max_size=2), st.lists(TURN, max_size=8), TEXT, st.integers(1, 300), st.sampled_from(["", "a summary"]))
def test_a_part_has_the_instructions_the_latest_turns_and_what_is_new(
    instructions: list[str], turns: list[tuple[Raw, ...]], new: str, limit: int, summary: str
) -> None:
    system = [raw("system", text) for text in instructions]
    talk = Talk({}, system, turns, [raw("user", new)], cut=True, summary=summary, covered=len(turns))
    part = talk.fitted(limit, "m")
    said = [(message["role"], message["content"]) for message in part["messages"]]
    body = [each for each in said if each[0] != "system"]
    whole = [(message["role"], message["content"]) for message in talk["messages"] if message["role"] != "system"]
    assert body == whole[len(whole) - len(body) :]  # the end of it, nothing left out in between
    assert body[-1] == ("user", new)
    assert body[0][0] != "tool" or body == whole  # no result without its call, unless none was ever there
    if tokens_of(talk.least) <= limit:
        assert tokens_of(part) <= limit
    if tokens_of(talk) <= limit:
        assert part is talk
    texts = " ".join(text for role, text in said if role == "system")
    assert all(text in texts for text in instructions)
    assert (summary in texts) or not summary or not talk.left_out
    assert talk.left_out.get("m", 0) in range(len(turns) + 1)
    assert Talk({}, system, turns, [raw("user", new)]).fitted(limit).keys() == talk.keys()


def test_what_a_tool_said_keeps_its_call_with_it() -> None:
    call = raw("assistant", "", tool_calls=[{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}])
    turns = [(raw("user", "x" * 400), raw("assistant", "y")), (raw("user", "call it"), call)]
    talk = Talk({}, [], turns, [raw("tool", "42", tool_call_id="c")], cut=True)
    assert [message["role"] for message in talk.fitted(60)["messages"]] == ["user", "assistant", "tool"]
    assert [message["role"] for message in talk.least["messages"]] == ["user", "assistant", "tool"]


@pytest.fixture
def servers() -> Iterator[tuple[Chats, Chats]]:
    pair = Chats(), Chats()
    yield pair
    for server in pair:
        server.close()


def config(servers: tuple[Chats, Chats], fit: str) -> str:
    small, large = servers
    return (
        f"models: {{small: {model(small, 'max_input: 120, peers: [large]')}, large: {model(large, 'cost: 3')}}}\n"
        f"routes: {{default: {{policy: small, session: {{{fit}}}, fallback: {{retry: 0}}}}}}\n"
    )


def talk_long(handle: Any) -> None:
    for number in range(5):
        assert ask(handle.url, hello(f"fact {number} " + "x" * 90), S).status == 200


def test_a_small_model_gets_the_latest_turns_and_the_answer_says_so(servers: tuple[Chats, Chats], tmp_path: Path) -> None:
    small, large = servers
    small.answer = large.answer = lambda _: completion("noted")
    with gateway(tmp_path, config(servers, "")) as handle:
        talk_long(handle)
        last = tell(handle, "what is fact 0?")
        assert last.headers["x-rheostat-model"] == "small"
        assert last.headers["x-rheostat-history"] == "5"
        assert 0 < int(last.headers["x-rheostat-left-out"]) < 5
        assert len(heard(small)) == 1 + 2 * (5 - int(last.headers["x-rheostat-left-out"]))
        kept = record(tmp_path, last)
        assert kept.history is not None
        assert kept.history.left_out == {"small": int(last.headers["x-rheostat-left-out"])}
        small.answer = lambda _: (500, b"{}")
        other = tell(handle, "and fact 1?")  # all is still known to one that can take it
        assert other.headers["x-rheostat-model"] == "large"
        assert "x-rheostat-left-out" not in other.headers
        assert heard(large)[0][1].startswith("fact 0")


def test_without_fit_a_model_that_cannot_take_all_is_passed_over(servers: tuple[Chats, Chats], tmp_path: Path) -> None:
    small, large = servers
    small.answer = large.answer = lambda _: completion("noted")
    with gateway(tmp_path, config(servers, "fit: none")) as handle:
        talk_long(handle)
        assert tell(handle, "what is fact 0?").headers["x-rheostat-model"] == "large"
        assert heard(large)[0][1].startswith("fact 0")


def test_a_summary_stands_for_what_has_no_room_is_made_once_and_paid_for(
    servers: tuple[Chats, Chats], tmp_path: Path
) -> None:
    small, large = servers
    small.answer = lambda _: completion("noted")
    large.answer = lambda _: completion("SUMMARY of facts")
    with gateway(tmp_path, config(servers, "fit: summary, summary_by: large, summary_tokens: 16")) as handle:
        talk_long(handle)
        summaries = len(large.asked)
        assert 0 < summaries < 4
        last = tell(handle, "?")
        kept = record(tmp_path, last)
        assert kept.history is not None
        assert kept.history.summary
        assert heard(small)[0][0] == "system"
        assert "SUMMARY of facts" in heard(small)[0][1]
        asked = json.loads(large.asked[-1])
        assert "Summary of what came before: SUMMARY" in asked["messages"][0]["content"] or summaries == 1
        costs = []
        for number in range(4):
            before = len(large.asked)
            kept = record(tmp_path, tell(handle, f"more {number} " + "z" * 90))
            made = len(large.asked) - before
            assert kept.cost == 1.0 + 3.0 * made
            assert [attempt.model for attempt in kept.outcomes[0].attempts] == ["large"] * made + ["small"]
            costs.append(made)
        assert 0 < sum(costs) < 4
        large.answer = lambda _: (500, b"{}")
        for number in range(3):  # without it, the latest turns
            assert tell(handle, f"again {number} " + "z" * 90).headers["x-rheostat-model"] == "small"
