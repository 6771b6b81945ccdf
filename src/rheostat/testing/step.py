"""What a faulty upstream does with one call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct


class Step(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="do"):
    """One entry of a script: it is used for `times` calls, and waits `delay` seconds before it answers."""

    times: int = 1
    delay: float = 0.0

    def __post_init__(self) -> None:
        if self.times < 1:
            raise ValueError(f"`times` must be 1 or more, got {self.times}")


class Ok(Step, frozen=True, kw_only=True, tag="ok"):
    """200 with `body` as the answer's text; no confidence. A caller that asked for a stream gets it as one piece."""

    body: str = "ok"


class Status(Step, frozen=True, kw_only=True, tag="status"):
    """This status with `headers` and `body`."""

    code: int
    headers: Mapping[str, str] = {}
    body: str = '{"error":{"message":"scripted"}}'


class Score(Step, frozen=True, kw_only=True, tag="score"):
    """200 with a label and a confidence, which may be NaN, infinite or None."""

    label: str
    confidence: float | None = None


class Scores(Step, frozen=True, kw_only=True, tag="scores"):
    """200 with a score for each label."""

    values: Mapping[str, float]


class Stream(Step, frozen=True, kw_only=True, tag="stream"):
    """Server-sent events: an opening event without text, the `chunks` (or `repeat_chunk` `n` times), each `gap` seconds
    after the one before, and then the end, a reset, silence (`hang`), or an event that tells an error."""

    chunks: tuple[str, ...] = ()
    repeat_chunk: str = ""
    n: int = 0
    gap: float = 0.0
    then: Literal["end", "reset", "hang", "error_event"] = "end"

    def pieces(self) -> tuple[str, ...]:
        """Return the pieces of text in their order."""
        return self.chunks if self.chunks else (self.repeat_chunk,) * self.n


class Hang(Step, frozen=True, kw_only=True, tag="hang"):
    """Takes the request and never answers."""


class Reset(Step, frozen=True, kw_only=True, tag="reset"):
    """Resets the connection without reading the request."""


class ResetAfterBody(Step, frozen=True, kw_only=True, tag="reset_after_body"):
    """Reads the whole request, then resets the connection."""


class Raw(Step, frozen=True, kw_only=True, tag="raw"):
    """200 with `body`, byte for byte, as JSON."""

    body: str


class EchoSum(Step, frozen=True, kw_only=True, tag="echo_sum"):
    """Answers with `y`, the sum of the request's `vector`; 500 when `raise_if_fill` is one of its numbers."""

    raise_if_fill: float | None = None


class EchoId(Step, frozen=True, kw_only=True, tag="echo_id"):
    """Answers with the digits of the request's text, after up to `delay_random` more seconds."""

    delay_random: float = 0.0


class Garbage(Step, frozen=True, kw_only=True, tag="garbage"):
    """Answers with `size` bytes that are no HTTP, and closes."""

    size: int = 64


class Half(Step, frozen=True, kw_only=True, tag="half"):
    """Promises the whole answer, sends the first half of its body and closes."""

    body: str = "ok"


class Drip(Step, frozen=True, kw_only=True, tag="drip"):
    """Sends its answer byte by byte, one every `gap` seconds."""

    body: str = "ok"
    gap: float = 0.1


class SlowClose(Step, frozen=True, kw_only=True, tag="slow_close"):
    """Sends an answer that ends when the connection closes, and closes it `close_after` seconds later."""

    body: str = "ok"
    close_after: float = 1.0


AnyStep = (
    Ok | Status | Score | Scores | Stream | Hang | Reset | ResetAfterBody | Raw | EchoSum | EchoId
    | Garbage | Half | Drip | SlowClose
)  # fmt: skip


def read_steps(written: Any) -> tuple[Step, ...]:
    """Return the steps that stand in a file as a list of mappings, each with its `do`.

    Raises:
        msgspec.ValidationError: a word or a value that is not known; the message says where.
    """
    return msgspec.convert(written, tuple[AnyStep, ...])


class Script:
    """Steps by number of the call; the last one repeats for ever."""

    def __init__(self, steps: tuple[Step, ...]) -> None:
        self._steps = tuple(step for step in steps for _ in range(step.times)) or (Ok(),)
        self._next = 0

    def peek(self) -> Step:
        """Return the step of the next call without using it."""
        return self._steps[min(self._next, len(self._steps) - 1)]

    def take(self) -> Step:
        """Return the step of the next call."""
        step = self.peek()
        self._next += 1
        return step
