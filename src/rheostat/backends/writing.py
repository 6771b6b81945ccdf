"""An answer while several models write it: what was written so far, by whom, and what of it may be handed out."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Protocol

import msgspec

from rheostat.backends.chat_frames import ChatFrames
from rheostat.backends.continuing import BORDER
from rheostat.backends.reply import bad_output
from rheostat.clock import SystemClock
from rheostat.errors import ModelError
from rheostat.pool.backend import Piece, Row
from rheostat.segments.stops import begins_stop
from rheostat.types import Failure, Outcome, Prediction
from rheostat.types.begun import Begun, Until, begun, room_of, stops_of
from rheostat.types.span import Span

READS_AHEAD = "reads ahead"


class Asks(Protocol):
    """Asks a model of the pool."""

    def ask(self, name: str, row: Row, timeout_s: float) -> AsyncGenerator[Piece | Outcome]:
        """Yield the pieces of the model's answer, and at last what came of it. Closing it stops the model's work."""


class Writing:
    """One answer while it is written. `text` is what was written so far; what may be the beginning of a text that is to end
    the answer is not handed out before that is known."""

    def __init__(self, asks: Asks, row: Row, name: str, timeout_s: float) -> None:
        self.text = ""
        self.spans: list[Span] = []
        self.finish: str | None = None
        self.failure: Failure | None = None
        self.at_border = False
        self.outcome: Outcome | None = None
        self._asks = asks
        self._row = row
        self._timeout_s = timeout_s
        self._clock = SystemClock()
        self._began = self._clock.monotonic()
        self._sent = 0
        self._room = room_of(row)
        self._stops = stops_of(row)
        self._read = 0
        self._frames = ChatFrames(row, name)

    @property
    def tokens(self) -> int:
        """The tokens that all models have written, each by its own count."""
        return sum(span.tokens for span in self.spans if span.why != READS_AHEAD)

    async def go_on(
        self, model: str, why: str, until: Until | None = None, room: int | None = None
    ) -> AsyncGenerator[Piece]:
        """Have the model go on, until it is at its end, `until` says so, or `room` tokens are written. Then `finish` says
        how the answer ended, if it did, and `failure` why the model could not go on.

        Yields what is to be handed out.
        """
        self.finish = self.failure = None
        left = None if self._room is None else self._room - self.tokens
        if left is not None and left <= 0:
            self.finish = "length"
            return
        most = room if left is None else left if room is None else min(left, room)
        before, heard = self.text, 0
        ended: list[int] = []

        def enough(added: str) -> int | None:
            if (at := self._stop(before + added, len(before))) is not None:
                ended.append(at)
                return max(0, at - len(before))
            return None if until is None else until(added)

        row = self._begun(before, most, enough)
        async with aclosing(self._asks.ask(model, row, self._left_s())) as said:
            async for each in said:
                if isinstance(each, Outcome):
                    self._note(each, why, most is not None and most == room, heard)
                    continue
                self.text += each.text
                heard += 1
                if piece := self._ready():
                    yield piece
        if ended:
            self.text, self.finish = self.text[: ended[0]], "stop"

    async def as_is(self, model: str) -> AsyncGenerator[Piece]:
        """Have the model answer by itself; its pieces are handed on as they are, and `outcome` is what came of it."""
        async with aclosing(self._asks.ask(model, self._row, self._left_s())) as said:
            async for each in said:
                if isinstance(each, Outcome):
                    self.outcome = each
                    self._note(each, "alone", False, 0)
                else:
                    yield msgspec.structs.replace(each, finish=None, reply=None)

    async def warm(self, model: str, ready: list[bool]) -> None:
        """Have the model read the conversation, so that it can go on sooner; `ready` says then whether it could."""
        async with aclosing(self._asks.ask(model, self._begun("", 1, None), self._left_s())) as said:
            async for each in said:
                if isinstance(each, Outcome):
                    self.spans.append(_span(each, READS_AHEAD))
                    ready.append(each.failure is None)

    def end(self) -> list[Piece]:
        """Return the last pieces: what was held, how the answer finished, and the whole.

        Raises:
            ModelError: there is no answer.
        """
        if self.failure is not None:
            raise ModelError(self.failure.kind, self.failure.message, upstream_status=self.failure.upstream_status)
        if not self.text.strip():
            raise bad_output("a text", "nothing but white space")
        finish = self.finish = self.finish or "stop"
        held = self._ready()
        usage = {"prompt_tokens": self._read, "completion_tokens": self.tokens, "total_tokens": self._read + self.tokens}
        reply = Prediction(self.text, None, None, self._frames.whole(self.text, finish, usage), spans=tuple(self.spans))
        last = Piece(finish=finish, reply=reply, chunk=self._frames.end(finish, usage))
        return [last] if held is None else [held, last]

    def _left_s(self) -> float:
        return max(0.0, self._timeout_s - (self._clock.monotonic() - self._began))

    def _note(self, outcome: Outcome, why: str, short: bool, heard: int) -> None:
        """Take note of what came of a call; with `short` its room was that of a segment, not of the answer. One that broke
        off tells no tokens: the pieces `heard` count."""
        span = _span(outcome, why)
        self.spans.append(span if outcome.failure is None else msgspec.structs.replace(span, tokens=heard))
        self.failure = outcome.failure
        usage, finish = _told(outcome)
        self._read = max(self._read, usage.get("prompt_tokens") or 0)
        self.at_border = finish == BORDER
        if finish is not None and not self.at_border and not (finish == "length" and short):
            self.finish = finish

    def _begun(self, said: str, room: int | None, until: Until | None) -> Begun:
        try:
            return begun(self._row, said, room, until)
        except ValueError as error:
            raise ModelError("input_refused", str(error)) from None

    def _stop(self, text: str, start: int) -> int | None:
        """Return where a text that ends the answer begins, if it does not end before `start`."""
        found = [text.find(stop, max(0, start - len(stop) + 1)) for stop in self._stops]
        return min((at for at in found if at >= 0), default=None)

    def _ready(self) -> Piece | None:
        """Return what can be handed out: all but what may be the beginning of a text that ends the answer."""
        end = len(self.text) - (begins_stop(self.text, self._stops) if self.finish is None else 0)
        if end <= self._sent:
            return None
        new = self.text[self._sent : end]
        self._sent = end
        return Piece(new, chunk=self._frames.text(new))


class _Choice(msgspec.Struct):
    finish_reason: str | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice] = []
    usage: dict[str, Any] | None = None


_decode = msgspec.json.Decoder(_Completion).decode


def _told(outcome: Outcome) -> tuple[Mapping[str, Any], str | None]:
    """Return the usage and the finish reason that a model told."""
    said = outcome.prediction
    if said is None or not isinstance(said.output, bytes):
        return {}, None if said is None else "stop"
    try:
        whole = _decode(said.output)
    except msgspec.DecodeError:
        return {}, "stop"
    return whole.usage or {}, (whole.choices[0].finish_reason if whole.choices else None) or "stop"


def _span(outcome: Outcome, why: str) -> Span:
    first = outcome.attempts[-1].first_s if outcome.attempts else None
    tokens = _told(outcome)[0].get("completion_tokens") or 0
    failure = "" if outcome.failure is None else outcome.failure.kind
    return Span(outcome.model, outcome.version, tokens, why, outcome.elapsed_s, first, outcome.cost, failure)
