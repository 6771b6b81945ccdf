"""Time limits of many calls by one timer: to set and clear one for each costs more than the rest of the waiting."""

from __future__ import annotations

import asyncio
from math import inf
from types import TracebackType
from typing import Protocol


class Due(Protocol):
    """Something that has to be over by `rings_at`, in the time of the event loop."""

    rings_at: float

    def ring(self) -> None:
        """Its time is over."""


class Bell:
    """Tells those whose time is over. It rings when the first of those that wait is due, and looks at all of them; what ends
    in time, as nearly everything does, costs no timer."""

    def __init__(self) -> None:
        self._waiting: dict[Due, None] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = inf

    def within(self, seconds: float, loop: asyncio.AbstractEventLoop) -> Limit:
        """Return a context that ends what the present task awaits in it after `seconds` (infinity: never).

        Raises (from the context):
            TimeoutError: it was not done by then.
        """
        return Limit(self, seconds, loop)

    def enter(self, due: Due, loop: asyncio.AbstractEventLoop) -> None:
        """Ring for this when it is due, unless it leaves before."""
        if loop is not self._loop:  # one that ended has taken its timer with it
            self._loop, self._timer, self._rings_at = loop, None, inf
            self._waiting.clear()
        self._waiting[due] = None
        if due.rings_at < self._rings_at:
            self._set(loop, due.rings_at)

    def leave(self, due: Due) -> None:
        """It is over, in time or not."""
        self._waiting.pop(due, None)

    def _set(self, loop: asyncio.AbstractEventLoop, rings_at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._rings_at = loop.call_at(rings_at, self._ring, loop), rings_at

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        now = max(self._rings_at, loop.time())  # a timer may come a little early
        self._timer, self._rings_at = None, inf
        for due in [due for due in self._waiting if due.rings_at <= now]:
            self.leave(due)
            due.ring()
        if self._waiting:
            self._set(loop, min([due.rings_at for due in self._waiting]))


class Limit:
    """The time that one piece of work has."""

    __slots__ = ("_bell", "_cancelling", "_loop", "_rang", "_task", "rings_at")

    def __init__(self, bell: Bell, seconds: float, loop: asyncio.AbstractEventLoop) -> None:
        self.rings_at = seconds
        self._bell = bell
        self._loop = loop
        self._rang = False

    def ring(self) -> None:
        self._rang = True
        self._task.cancel()

    def __enter__(self) -> Limit:
        task = asyncio.current_task(self._loop)
        assert task is not None
        self._task, self._cancelling = task, task.cancelling()
        if self.rings_at != inf:
            self.rings_at += self._loop.time()
            self._bell.enter(self, self._loop)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bell.leave(self)
        if self._rang and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error
