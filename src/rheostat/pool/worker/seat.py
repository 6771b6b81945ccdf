"""The place of one worker process, over all that take it in turn: who sits there, and when the next one is due."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

from rheostat.clock import Clock
from rheostat.pool.worker.limits import held_bytes
from rheostat.pool.worker.process import LEAVE_S, Process
from rheostat.pool.worker.starter import Starter
from rheostat.resilience.restart import RestartState, ended, pause_s

REASONS = ("ended", "stuck", "memory", "start")
"""Why a process is started again: it ended by itself or was killed, it did not answer, it held much memory, or the one
before did not start."""
_log = logging.getLogger("rheostat.pool")


class Seat:
    """Keeps a process in its place: waits for its end, and puts the next one there after a pause that fits.

    `came` is told of a process that takes the seat after a gap (True) or without one; `gone` is called when one has ended.
    """

    def __init__(
        self, name: str, starter: Starter, backoff_s: float, clock: Clock,
        came: Callable[[Process, bool], None], gone: Callable[[], None],
    ) -> None:  # fmt: skip
        self.process: Process | None = None
        self.restarts: Counter[str] = Counter()
        self.why = ""  # how the last process ended, or why none started
        self._name = name
        self._starter = starter
        self._backoff_s = backoff_s
        self._clock = clock
        self._came = came
        self._gone = gone
        self._state = RestartState()
        self._since = 0.0  # when its process came into service
        self._begins = 0.0  # when the next start begins or began
        self._keeper: asyncio.Task[None] | None = None
        self._leaving: set[asyncio.Task[None]] = set()

    @property
    def up(self) -> bool:
        """True while a process sits there."""
        return self.process is not None and self.process.alive

    def take(self, process: Process, gap: bool) -> None:
        """Put a process there that is ready."""
        self.process, self._since = process, self._clock.monotonic()
        self._came(process, gap)

    def keep(self) -> None:
        """See to it from now on that a process sits there."""
        self._keeper = asyncio.ensure_future(self._kept())

    def expected_s(self, now: float) -> float:
        """Return the seconds until a process there should take calls: 0 with one in service, unless it seems to hang."""
        process = self.process
        if process is not None:
            hangs_for = process.hangs_for_s if process.alive else 0.0
            return 0.0 if hangs_for is None else hangs_for + self._starter.took_s
        left = self._begins + self._starter.took_s - now
        return left if left > 0.0 else now - self._begins  # it is overdue: as long again

    def status(self, now: float) -> dict[str, Any]:
        """Return what people ask for; memory in bytes, as far as the process holds it for itself."""
        process = self.process
        if process is None or not process.alive:
            return {"state": "down", "ends_in_a_row": self._state.ends, "expected_in_s": round(self.expected_s(now), 3)}
        state = "idle" if not process.busy else "busy" if process.hangs_for_s is None else "hanging"
        return {
            "state": state,
            "pid": process.pid,
            "calls": process.calls,
            "up_s": round(now - self._since, 3),
            "memory": held_bytes(process.pid),
        }

    async def aclose(self) -> None:
        """End its process; one that does not leave within 2 seconds is killed."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        leaving = () if self.process is None else (_left(self.process),)
        await asyncio.gather(*self._leaving, *leaving, return_exceptions=True)

    async def _kept(self) -> None:
        while True:
            process = self.process
            if process is not None:
                await asyncio.wait((process.ended, process.heavy), return_when=asyncio.FIRST_COMPLETED)
                if not process.ended.done():
                    await self._relieve(process)
                    continue
                self._lost(process)
            pause = pause_s(self._state, self._backoff_s)
            self._begins = self._clock.monotonic() + pause
            if process is not None:
                self._gone()
            await asyncio.sleep(pause)
            self._begins = self._clock.monotonic()
            fresh = await self._started()
            if fresh is not None:
                self.take(fresh, gap=True)
                _log.warning("model %s: process %d is in service after %.2f s", self._name, fresh.pid, self._starter.took_s)

    async def _started(self) -> Process | None:
        try:
            return await self._starter.start()
        except Exception as error:  # whatever it is, the seat is not given up
            self._state = ended(self._state, 0.0)
            self.restarts["start"] += 1
            self.why = str(error)
            told = (self._name, self._state.ends, pause_s(self._state, self._backoff_s), error)
            _log.error("model %s: a process did not start (%d in a row, the next in %g s): %s", *told)
            return None

    def _lost(self, process: Process) -> None:
        """Take note that a process in service has ended."""
        self.process, self._state = None, ended(self._state, self._clock.monotonic() - self._since)
        self.restarts["stuck" if process.stuck else "ended"] += 1
        self.why = f"process {process.pid} {process.ended.result()}"
        told = (self._name, self.why, process.calls, self._state.ends, pause_s(self._state, self._backoff_s))
        _log.error("model %s: %s after %d calls (ends in a row: %d); the next is started in %g s", *told)

    async def _relieve(self, process: Process) -> None:
        """Put a fresh process in the place of one that holds too much memory, which serves until then."""
        _log.warning("model %s: process %d holds much memory and is replaced", self._name, process.pid)
        fresh = await self._started()
        if fresh is None:
            process.heavy = asyncio.get_running_loop().create_future()  # the next answer tells again
            await asyncio.wait((process.ended,), timeout=max(1.0, pause_s(self._state, self._backoff_s)))
            return
        self.restarts["memory"] += 1
        leaving = asyncio.ensure_future(_left(process))
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)
        self.take(fresh, gap=False)


async def _left(process: Process) -> None:
    """Let the process go when it has answered whoever waits; kill it when it stays."""
    process.retire()
    with contextlib.suppress(asyncio.CancelledError):
        if process.awaited:
            await asyncio.wait((process.ended,), timeout=process.stuck_s)
        elif process.busy:
            process.kill()
        await asyncio.wait((process.ended,), timeout=LEAVE_S)
    if not process.ended.done():
        await process.end()
