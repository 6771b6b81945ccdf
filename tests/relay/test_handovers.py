"""Handovers with faults at any place: whoever goes on is told all that was handed out, and nothing more or less is."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from rheostat.backends.progressive import Progressive, ProgressiveModel
from rheostat.backends.relay import Relay, RelayModel
from rheostat.errors import ModelError
from rheostat.pool.backend import Piece
from rheostat.segments.cues import Cue, Cues
from rheostat.types import Chat, Failure, Outcome, Prediction

WORDS = st.lists(st.sampled_from([" So", " a", " bc", ".", "\n", " 模", "型", "。", " 😀"]), min_size=1, max_size=10)
CALLS = st.lists(st.tuples(WORDS, st.booleans()), min_size=1, max_size=6)
"""What each call of a part writes, and whether it fails then."""


class Parts:
    """Parts that write what they are told to, call by call, and break off where they are told to."""

    def __init__(self, calls: dict[str, list[tuple[list[str], bool]]]) -> None:
        self.calls = {name: list(listed) for name, listed in calls.items()}
        self.out = ""  # what the client has
        self.asked: list[tuple[str, str]] = []
        self.open = 0

    async def ask(self, name: str, row: Any, timeout_s: float) -> Any:  # noqa: ARG002
        self.open += 1
        try:
            ahead = row.room == 1
            if not ahead:
                assert row.said == self.out
                self.asked.append((name, row.said))
            words, fails = self.calls[name].pop(0) if self.calls[name] else ([], False)
            added, kept = "", None
            for word in words:
                await asyncio.sleep(0)
                before = len(added)
                added += word
                kept = row.until(added) if row.until is not None and not ahead else None
                added = added if kept is None else added[: max(kept, before)]
                if added[before:]:
                    yield Piece(added[before:])
                if kept is not None or ahead:
                    fails = False
                    break
            finish = "border" if kept is not None else "stop"
            failure = Failure("reset", "broke off") if fails else None
            choice = {"message": {"content": row.said + added}, "finish_reason": finish}
            said = json.dumps({"choices": [choice], "usage": {"prompt_tokens": 1, "completion_tokens": len(words)}})
            yield Outcome(name, None if fails else Prediction("x", None, None, said.encode()), failure)
        finally:
            self.open -= 1


def chat() -> Chat:
    return Chat({"messages": Raw(b'[{"role": "user", "content": "Go."}]')})


async def heard(model: Any, parts: Parts) -> tuple[Prediction | None, ModelError | None]:
    model.bind("both", parts)
    reply, error = None, None
    try:
        async for piece in model.astream(chat(), 10.0):
            parts.out += piece.text
            reply = piece.reply or reply
    except ModelError as failure:
        error = failure
    for _ in range(3):
        await asyncio.sleep(0)
    assert not parts.open
    return reply, error


def check(model: Any, parts: Parts) -> None:
    reply, error = asyncio.run(heard(model, parts))
    assert (reply is None) == (error is not None)
    if reply is not None:
        assert reply.label == parts.out
        completion = json.loads(reply.output)
        assert completion["choices"][0]["message"]["content"] == parts.out
        written = [span for span in reply.spans if span.why != "reads ahead"]
        assert [span.model for span in written] == [name for name, _ in parts.asked]
        assert not written[-1].failure or (len(written) > 1 and model.__class__ is Progressive)


@settings(max_examples=300, deadline=None)
@given(CALLS, CALLS, st.booleans(), st.sampled_from(["sentence", "line"]))
def test_a_progressive_answer(fast: Any, strong: Any, ahead: bool, at: str) -> None:
    settings = ProgressiveModel(fast="fast", strong="strong", at=at, ahead=ahead)  # type: ignore[arg-type]
    check(Progressive(settings), Parts({"fast": fast, "strong": strong}))


@settings(max_examples=300, deadline=None)
@given(CALLS, CALLS)
def test_turns(strong: Any, small: Any) -> None:
    cues = Cues(
        strong="strong", strong_version="1", small="small", small_version="1", at="sentence", share=0.5,
        cues=(Cue("so", 9, 0.9, 0.9, True),),
    )  # fmt: skip
    check(Relay(RelayModel(strong="strong", small="small", cues="-"), cues), Parts({"strong": strong, "small": small}))
