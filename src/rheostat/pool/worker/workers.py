"""A model that computes in processes of its own: asked in order, watched, and replaced when one ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from rheostat.clock import Clock
from rheostat.errors import ContractError, ModelError
from rheostat.pool.backend import ModelSettings, Reply, Row
from rheostat.pool.worker.hello import Hello, hello
from rheostat.pool.worker.limits import held_bytes
from rheostat.pool.worker.line import Job, Line
from rheostat.pool.worker.message import Ready
from rheostat.pool.worker.process import Answer, Ended, Process
from rheostat.pool.worker.seat import REASONS, Seat
from rheostat.pool.worker.settings import WorkerSettings
from rheostat.pool.worker.starter import Starter

PATIENCE_S = 2.0
"""While no process serves, calls wait this long at most, and half of their own time, for one that is expected."""


def _nothing() -> bool:
    return True


class Workers:
    """A remote backend over `count` processes of one model. `open` makes one; it belongs to the loop it was opened on.

    A call goes to a process that has nothing to do, else it waits in order; one whose caller leaves before it was begun
    is never computed. Rows of a process that ends get `crashed`. When a process is in service again after a gap,
    `on_back` is called with the share of them that served meanwhile and the time.
    """

    def __init__(
        self,
        name: str,
        worker: WorkerSettings,
        greeting: Hello,
        unchanged: Callable[[], bool],
        patience_s: float,
        clock: Clock,
    ) -> None:
        self.name = name
        self.settings = worker
        self.labels: tuple[str, ...] | None = None
        self.on_back: Callable[[float, float], None] = lambda _share, _now: None
        self._clock = clock
        self._line = Line()
        self._starter = Starter(greeting, unchanged, self._line.free, clock)
        self._closed = False
        self._patience_s = patience_s
        self._in_vain = False  # calls have waited long enough for a process
        self._look: asyncio.TimerHandle | None = None
        self._seats = [
            Seat(name, self._starter, float(worker.backoff), clock, self._came, self._gone) for _ in range(worker.count)
        ]

    @classmethod
    async def open(
        cls, name: str, settings: ModelSettings, worker: WorkerSettings, base: str, clock: Clock,
        unchanged: Callable[[], bool] = _nothing, patience_s: float = PATIENCE_S,
    ) -> tuple[Workers, Ready]:  # fmt: skip
        """Start the processes; return when every one of them has loaded the model, and the first has kept its contract.

        Args:
            unchanged: says whether the files of the model are still those of the first process.
            patience_s: how long a call waits at most while no process serves; 0: it fails at once, so that another model
                can answer.

        Raises:
            ConfigError, ContractError: the model cannot be used; no process is left.
        """
        made = cls(name, worker, hello(name, settings, worker, base), unchanged, patience_s, clock)
        first, *others = made._seats
        try:
            first.take(await made._starter.start(), gap=False)
            ready = made._starter.first
            assert ready is not None
            made.labels = ready.labels
            started = await asyncio.gather(*(made._starter.start() for _ in others), return_exceptions=True)
            for seat, process in zip(others, started, strict=True):
                if isinstance(process, Process):
                    seat.take(process, gap=False)
            for process in started:
                if isinstance(process, BaseException):
                    raise process
        except BaseException as error:
            await made.aclose()
            if isinstance(error, Ended | OSError):
                raise ContractError(f"model {name} takes no traffic: {error}") from None
            raise
        for seat in made._seats:
            seat.keep()
        return made, ready

    @property
    def up(self) -> int:
        """How many processes are in service."""
        return sum([seat.up for seat in self._seats])

    @property
    def count(self) -> int:
        """How many there should be."""
        return len(self._seats)

    @property
    def bytes(self) -> int:
        """The memory that the processes hold for themselves, all together."""
        return sum(held_bytes(seat.process.pid) for seat in self._seats if seat.process is not None and seat.process.alive)

    @property
    def restarts(self) -> dict[str, int]:
        """How many processes were replaced so far, by `REASONS`."""
        return {reason: sum(seat.restarts[reason] for seat in self._seats) for reason in REASONS}

    @property
    def why(self) -> str:
        """How the processes that are not in service ended; empty when all are."""
        return "; ".join(dict.fromkeys(seat.why for seat in self._seats if seat.why and not seat.up))

    @property
    def outdated(self) -> bool:
        """True when the code that the model was imported from has changed on disk, so that none can be replaced."""
        return self._starter.outdated

    def wait_s(self, now: float) -> float:
        """Return the seconds until a process is expected, if none serves and a call would not wait for it; else 0."""
        wait = self._expected_s(now)
        return wait if wait > self._patience_s or self._in_vain else 0.0

    def out(self, now: float) -> str:
        """Say why calls are not taken now; empty when they are."""
        if not self.wait_s(now):
            return ""
        return f"no process serves now: {self.why or 'those there are do not answer'}"

    async def apredict(self, rows: Sequence[Row], timeout_s: float) -> Sequence[Reply]:
        """Answer every row within `timeout_s` seconds.

        Raises:
            ModelError: `timeout`; `crashed` when the process ended; `unavailable` when none is expected in time; or what
                the model itself said of the whole call.
        """
        loop = asyncio.get_running_loop()
        answer: Answer = loop.create_future()
        job = Job(rows, answer)
        if not self._line.ask(job):
            now = self._clock.monotonic()
            wait = self._expected_s(now)
            patience = min(0.5 * timeout_s, self._patience_s)
            if self._closed or wait > patience:
                why = "the model is closed" if self._closed else self.out(now) or f"no process serves now: {self.why}"
                raise ModelError("unavailable", why, retry_after_s=wait)
            self._line.wait(job)
            if wait and self._look is None:
                self._look = loop.call_later(patience, self._looked)
        timer = loop.call_later(timeout_s, _late, answer, timeout_s) if timeout_s < 1e6 else None
        try:
            return await answer
        finally:
            if timer is not None:
                timer.cancel()

    async def aclose(self) -> None:
        """End every process; one that does not leave within 2 seconds is killed."""
        self._closed = True
        if self._look is not None:
            self._look.cancel()
        self._line.fail("the model is closed")
        await asyncio.gather(*(seat.aclose() for seat in self._seats), return_exceptions=True)

    def status(self, now: float) -> dict[str, Any]:
        """Return what people ask for, as plain values."""
        return {
            "up": self.up,
            "count": self.count,
            "waiting": self._line.waiting,
            "restarts": self.restarts,
            "why": self.why,
            "processes": [seat.status(now) for seat in self._seats],
        }

    def _came(self, process: Process, gap: bool) -> None:
        self._in_vain = False
        self._line.forget_gone()
        self._line.free(process)
        if gap:
            self.on_back((self.up - 1) / self.count, self._clock.monotonic())

    def _gone(self) -> None:
        self._line.forget_gone()
        wait = self._expected_s(self._clock.monotonic())
        if wait > self._patience_s:
            self._line.fail(f"no process serves now: {self.why}", wait)

    def _looked(self) -> None:
        """A call has waited long enough for a process: unless one serves, nobody waits any longer until one does."""
        self._look = None
        wait = self._expected_s(self._clock.monotonic())
        if wait:
            self._in_vain = True
            self._line.fail(f"no process serves now: {self.why}", wait)

    def _expected_s(self, now: float) -> float:
        """Return the seconds until a process should take calls; 0 when one does."""
        least = inf
        for seat in self._seats:
            least = min(least, seat.expected_s(now))
            if not least:
                break
        return least


def _late(answer: Answer, timeout_s: float) -> None:
    if not answer.done():
        answer.set_exception(ModelError("timeout", f"no answer within {timeout_s:.3f} s"))
