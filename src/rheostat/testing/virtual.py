"""An event loop whose time moves only by waiting: a minute of timeouts runs in a millisecond, the same way every time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class VirtualLoop(asyncio.SelectorEventLoop):
    """Jumps to the next timer instead of waiting for it. What is meant for a thread (`asyncio.to_thread`) is done on the
    spot, in no time. Sockets are not for this loop."""

    def __init__(self, start: float = 1_000.0) -> None:
        self._now = start
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return self._now

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]  # noqa: ARG002
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done

    def advance(self, seconds: float) -> None:
        """Move time forward."""
        self._now += seconds

    monotonic = time
    wall = time


class _JumpingSelector(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("nothing is scheduled and nothing will ever happen: a waiter was forgotten")
        if timeout > 0:
            self._loop.advance(timeout)
        return super().select(0)


def run_virtual(main: Coroutine[Any, Any, T], loop: VirtualLoop) -> T:
    """Run `main` to its end on `loop` (which is also a Clock) and close the loop."""
    try:
        return loop.run_until_complete(main)
    finally:
        loop.close()
