"""Streamed answers: who may stream, how its pieces go out, and what follows when they stop in the middle."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, cast

from msgspec import structs

from rheostat.engine.ending import Ending
from rheostat.errors import ModelError, NoAnswer
from rheostat.pool.backend import StreamingBackend
from rheostat.resilience.stream import next_limit, told
from rheostat.types import Answer, Outcome, Prediction

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from rheostat.clock import Clock
    from rheostat.engine.engine import Served
    from rheostat.engine.journey import Journey
    from rheostat.pool import Model
    from rheostat.pool.backend import Piece, Reply
    from rheostat.types import Request


_BROKEN = "failed after first piece"
_MANY = 64  # labels for each of which a policy is asked what it would do


class Outlet:
    """Where the pieces of one answer go out. It holds one at a time, so that a slow client slows the model.

    `pieces` counts what went in, `first_s` is how long the first one took from the start of its attempt, `history` how many
    turns were put in front of the request where conversations are kept.
    """

    __slots__ = ("_came", "_gone", "_piece", "closed", "first_s", "history", "pieces")

    def __init__(self) -> None:
        self.pieces = 0
        self.history: int | None = None
        self.first_s: float | None = None
        self.closed = False
        self._piece: Piece | None = None
        self._came: asyncio.Future[None] | None = None
        self._gone: asyncio.Future[None] | None = None

    async def put(self, piece: Piece) -> None:
        """Hand in a piece; waits until the one before has been taken."""
        while self._piece is not None:
            self._gone = asyncio.get_running_loop().create_future()
            await self._gone
        self._piece = piece
        self.pieces += 1
        _wake(self._came)

    async def take(self) -> Piece | None:
        """Wait for the next piece; None when no more will come."""
        while self._piece is None:
            if self.closed:
                return None
            self._came = asyncio.get_running_loop().create_future()
            await self._came
        piece, self._piece = self._piece, None
        _wake(self._gone)
        return piece

    def close(self) -> None:
        """Say that no more will come."""
        self.closed = True
        _wake(self._came)


class Stream:
    """One answer, text by text: `async for text in stream`, best inside `async with`, which stops the work on leaving it.

    Raises, while it is read: the RheostatError that a plain request would have got, before the first text; after it,
    NoAnswer, which says that the answer broke off. When it is at its end `served` holds the whole answer.
    """

    def __init__(self, serve: Callable[[Outlet], Awaitable[Served]]) -> None:
        self.served: Served | None = None
        self._told = False
        self._serve = serve
        self._outlet = Outlet()
        self._task: asyncio.Task[Served] | None = None

    @property
    def pieces(self) -> int:
        """How many texts a model has given so far."""
        return self._outlet.pieces

    @property
    def history(self) -> int | None:
        """How many turns were put in front of the request, where conversations are kept."""
        return self._outlet.history

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> str:
        while (piece := await self.take()) is not None:
            if piece.text:
                return piece.text
        if self._told or self._outlet.pieces or self.served is None or self.served.prediction is None:
            raise StopAsyncIteration
        self._told = True
        return self.served.prediction.label

    async def take(self) -> Piece | None:
        """Return the next piece of an answer that comes piece by piece; None at its end, and for one that comes whole."""
        if self.served is not None:
            return None
        if self._task is None:
            self._task = asyncio.ensure_future(self._serve(self._outlet))
            self._task.add_done_callback(lambda _: self._outlet.close())
        piece = await self._outlet.take()
        if piece is not None:
            return piece
        served = await self._task
        self.served = served
        if served.error is not None:
            raise served.error
        return None

    async def __aenter__(self) -> Stream:
        return self

    async def __aexit__(self, *ended: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop: the model's work is cancelled, its place is free again when this returns."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait((self._task,))

    def __del__(self) -> None:
        if self._task is not None and not self._task.done() and not self._task.get_loop().is_closed():
            self._task.cancel()


def may_stream(journey: Journey, model: Model) -> bool:
    """Return whether the model's own text, whatever it will be, is the answer to the request.

    The policy is asked what it would do with an answer of this model, and of no known confidence: if it would answer with
    it alone, as it is said, the pieces may go out. On the ladder they may, as nothing else is in hand there.
    """
    if model.settings.stream is None or not isinstance(model.backend, StreamingBackend):
        return False
    if journey.falling is not None:
        return True
    labels = model.labels or ("",)
    if journey.awaiting or len(labels) > _MANY:
        return False  # a signal made from the answer may change what the policy does
    name = journey.asked.standing.get(model.name, model.name)
    others = tuple(other for other in journey.history if other.model != name)
    try:
        return all(_is_last_word(journey, name, (*others, Outcome(name, Prediction(label)))) for label in labels)
    except Exception:  # the live decision will fail in the same way, and be seen there
        return False


def _is_last_word(journey: Journey, name: str, outcomes: tuple[Outcome, ...]) -> bool:
    decision = journey.policy.decide(structs.replace(journey.ctx, memo=dict(journey.ctx.memo)), outcomes)
    if not isinstance(decision, Answer):
        return False
    floor = decision.floor or journey.floor
    if floor is not None and floor.label is not None:
        return False  # an answer that is not sure enough is set aside
    return {other for other, weight in decision.weights.items() if weight > 0.0} == {name} and not decision.stand_ins


async def poured(model: Model, request: Request, outlet: Outlet, clock: Clock) -> Reply:
    """Ask the model for a stream and hand its pieces to the outlet; returns what it answered in all.

    Raises:
        ModelError: it failed, or a limit fired; the message says which, and how many pieces had gone out.
    """
    limits = model.settings.stream
    assert limits is not None
    backend = cast("StreamingBackend", model.backend)
    texts: list[str] = []
    began = clock.monotonic()
    left = request.deadline - began
    waited = since = 0.0
    source = cast("AsyncGenerator[Piece]", backend.astream(request.data, float(limits.total) or float("inf")))
    try:
        async with aclosing(source):
            complete = False
            while True:
                wait, name = next_limit(limits, waited, since, len(texts), left - waited)
                if complete:  # the backend waits no longer than a while for what only tells about it
                    wait = float("inf")
                now = clock.monotonic()
                try:
                    async with asyncio.timeout(wait if wait != float("inf") else None) as timer:
                        piece = await anext(source, None)
                except TimeoutError:
                    if not timer.expired():
                        raise
                    hurried = name == "deadline" and 2 * left < limits.first
                    raise ModelError("deadline" if hurried else "timeout", told(limits, name, left)) from None
                took = clock.monotonic() - now
                waited += took
                since += took
                if piece is None:
                    raise ModelError("reset", "truncated: the stream ended without a finish reason or end marker")
                if piece.text or piece.chunk:
                    since = 0.0
                    if not texts:
                        outlet.first_s = clock.monotonic() - began
                    texts.append(piece.text)
                    await outlet.put(piece)
                complete = complete or piece.complete
                if piece.finish is not None:
                    return _reply(piece, texts)
    except ModelError as error:
        raise _after(outlet, error) from None
    except Exception as error:  # whatever a backend raises is this attempt's failure only
        raise _after(outlet, ModelError("crashed", f"{type(error).__name__}: {error}")) from None


def _reply(piece: Piece, texts: list[str]) -> Reply:
    reply: Reply | None = piece.reply
    if reply is None:
        label = "".join(texts).strip()
        reply = Prediction(label) if label else ModelError("bad_output", "the stream is complete and has no text")
    if isinstance(reply, ModelError):
        raise reply
    return reply


def _after(outlet: Outlet, error: ModelError) -> ModelError:
    if not outlet.pieces:
        return error
    said = _broken(outlet, str(error))
    return ModelError(error.kind, said, upstream_status=error.upstream_status, retry_after_s=error.retry_after_s)


def _broken(outlet: Outlet, why: str) -> str:
    return f"{_BROKEN} ({outlet.pieces} went out): {why}"


def settle(journey: Journey, outlet: Outlet, outcome: Outcome, at_s: float) -> None:
    """End the journey of an answer whose pieces have gone out: they are the answer, or it has broken off.

    No other model may speak then, not even one that has answered before.
    """
    failure, said = outcome.failure, outcome.prediction
    if failure is None:
        journey.arrived(outcome, at_s)
        answer = journey.ending.prediction if journey.ending is not None else None
        if answer is not None and said is not None and answer.label == said.label:
            return
    else:
        journey.asked.remember(journey.asked.placed(outcome))
    journey.at_s = at_s
    journey.in_flight.clear()
    journey.asked.standing = {}
    why = failure.message if failure is not None else "the policy wants another answer"
    message = why if why.startswith(_BROKEN) else _broken(outlet, why)
    error = NoAnswer(f"{outcome.served_by or outcome.model}: {message}", 502)
    journey.ending = Ending(error=error, by=journey.by, reason=message)


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
