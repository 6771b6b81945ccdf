"""Time limits of many calls by one timer: to set and clear one for each costs more than the rest of the waiting."""

from __future__ import annotations

import asyncio
from math import inf
from types import TracebackType


class Bell:
    """Cancels work that takes too long: `with bell.within(seconds): await work`.

    It rings when the first of those that wait is due, and looks at all of them; work that ends in time, as nearly all does,
    costs no timer.
    """

    def __init__(self) -> None:
        self._limits: dict[Limit, None] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = inf

    def within(self, seconds: float) -> Limit:
        """Return a context that ends what is awaited in it after `seconds` (infinity: never).

        Raises (from the context):
            TimeoutError: it was not done by then.
        """
        return Limit(self, seconds)

    def enter(self, limit: Limit) -> None:
        """Take note of a limit."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # one that ended has taken its timer with it
            self._loop, self._timer, self._rings_at = loop, None, inf
            self._limits.clear()
        limit.due += loop.time()
        self._limits[limit] = None
        if limit.due < self._rings_at:
            self._set(loop, limit.due)

    def leave(self, limit: Limit) -> None:
        """Forget a limit."""
        self._limits.pop(limit, None)

    def _set(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._rings_at = loop.call_at(due, self._ring, loop), due

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        now = max(self._rings_at, loop.time())  # a timer may come a little early
        self._timer, self._rings_at = None, inf
        for limit in [limit for limit in self._limits if limit.due <= now]:
            self.leave(limit)
            limit.ring()
        if self._limits:
            self._set(loop, min([limit.due for limit in self._limits]))


class Limit:
    """The time that one piece of work has."""

    __slots__ = ("_bell", "_cancelling", "_rang", "_task", "due")

    def __init__(self, bell: Bell, seconds: float) -> None:
        self.due = seconds
        self._bell = bell
        self._rang = False

    def ring(self) -> None:
        """Its time is over."""
        self._rang = True
        self._task.cancel()

    def __enter__(self) -> Limit:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._cancelling = task, task.cancelling()
        if self.due != inf:
            self._bell.enter(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bell.leave(self)
        if self._rang and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error
