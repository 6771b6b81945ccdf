"""A model that computes in processes of its own: asked in order, watched, and replaced when one ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rheostat.clock import Clock
from rheostat.errors import ConfigError, ContractError, ModelError, Problem
from rheostat.pool.backend import ModelSettings, Reply, Row
from rheostat.pool.worker.hello import Hello, hello
from rheostat.pool.worker.limits import held_bytes
from rheostat.pool.worker.message import Ready, Refused, Writer
from rheostat.pool.worker.process import Answer, Ended, Process
from rheostat.pool.worker.settings import WorkerSettings
from rheostat.resilience.restart import RestartState, ended, pause_s

WAIT_S = 2.0
"""While no process serves, a call waits this long at most for one that is expected; beyond it, it fails at once."""
_LEAVE_S = 2.0
_log = logging.getLogger("rheostat.pool")


class _Job(NamedTuple):
    rows: Sequence[Row]
    answer: Answer


class _Seat:
    """The place of one process, over all that take it in turn."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: Process | None = None
        self.state = RestartState()
        self.since = 0.0  # when its process came into service
        self.due = 0.0  # when the next one is expected there
        self.keeper: asyncio.Task[None] | None = None


class Workers:
    """A remote backend over `count` processes of one model. `open` makes one; it belongs to the loop it was opened on.

    A call goes to a process that has nothing to do, else it waits in order; one whose caller leaves before it was begun
    is never computed. Rows of a process that ends get `crashed`. `on_change` is called with True when the model is in
    service again after no process was, and with False when none is.
    """

    def __init__(self, name: str, worker: WorkerSettings, greeting: Hello, clock: Clock) -> None:
        self.name = name
        self.settings = worker
        self.labels: tuple[str, ...] | None = None
        self.restarts = {"ended": 0, "stuck": 0, "memory": 0, "start": 0}
        self.why = ""  # how the last process ended
        self.on_change: Callable[[bool], None] = lambda _up: None
        self._greeting = greeting
        self._environment = greeting.environment
        self._clock = clock
        self._seats = [_Seat(number) for number in range(worker.count)]
        self._idle: list[Process] = []
        self._queue: deque[_Job] = deque()
        self._start_s = 1.0
        self._leaving: set[asyncio.Task[None]] = set()
        self._checker = Writer()
        self._closed = False

    @classmethod
    async def open(
        cls, name: str, settings: ModelSettings, worker: WorkerSettings, base: str, clock: Clock
    ) -> tuple[Workers, Ready]:
        """Start the processes; return when every one of them has loaded the model and kept its contract.

        Raises:
            ConfigError, ContractError: the model cannot be used; no process is left.
        """
        made = cls(name, worker, hello(name, settings, worker, base), clock)
        try:
            began = clock.monotonic()
            first, ready = await made._started(brief=False)
            made._start_s = clock.monotonic() - began
            made.labels = ready.labels
            made._take(made._seats[0], first)
            for seat in made._seats[1:]:
                process, _ = await made._started(brief=True)
                made._take(seat, process)
        except BaseException as error:
            await made.aclose()
            if isinstance(error, Ended):
                raise ContractError(f"model {name} takes no traffic: {error}") from None
            raise
        for seat in made._seats:
            seat.keeper = asyncio.ensure_future(made._keep(seat))
        return made, ready

    @property
    def up(self) -> int:
        """How many processes are in service."""
        return sum([seat.process is not None and seat.process.alive for seat in self._seats])

    def wait_s(self, now: float) -> float:
        """Return the seconds until a process is expected, if none serves and a call would not wait for it; else 0."""
        wait = self._expected_s(now)
        return wait if wait > WAIT_S else 0.0

    async def apredict(self, rows: Sequence[Row], timeout_s: float) -> Sequence[Reply]:
        """Answer every row within `timeout_s` seconds.

        Raises:
            ModelError: `timeout`; `crashed` when the process ended; `unavailable` when none is expected in time; or what
                the model itself said of the whole call.
        """
        loop = asyncio.get_running_loop()
        answer: Answer = loop.create_future()
        if not self._ask(_Job(rows, answer)):
            wait = self._expected_s(self._clock.monotonic())
            if wait > min(timeout_s, WAIT_S):
                raise ModelError("unavailable", f"no process serves now: {self.why}", retry_after_s=wait)
            self._queue.append(_Job(rows, answer))
        timer = loop.call_later(timeout_s, _late, answer, timeout_s) if timeout_s < 1e6 else None
        try:
            return await answer
        finally:
            if timer is not None:
                timer.cancel()

    async def aclose(self) -> None:
        """End every process; one that does not leave within 2 seconds is killed."""
        self._closed = True
        keepers = [seat.keeper for seat in self._seats if seat.keeper is not None]
        for keeper in keepers:
            keeper.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)
        self._fail_queue("the model is closed")
        processes = [seat.process for seat in self._seats if seat.process is not None]
        await asyncio.gather(*self._leaving, *(_left(process) for process in processes), return_exceptions=True)

    def status(self, now: float) -> dict[str, Any]:
        """Return what people ask for, as plain values; memory in bytes, as far as each process holds it for itself."""
        return {
            "up": self.up,
            "count": len(self._seats),
            "waiting": sum(not job.answer.done() for job in self._queue),
            "restarts": dict(self.restarts),
            "why": self.why,
            "processes": [self._seen(seat, now) for seat in self._seats],
        }

    def _seen(self, seat: _Seat, now: float) -> dict[str, Any]:
        process = seat.process
        if process is None or not process.alive:
            return {"state": "down", "in_a_row": seat.state.ends, "next_in_s": round(max(0.0, seat.due - now), 3)}
        return {
            "state": "busy" if process.busy else "idle",
            "pid": process.pid,
            "calls": process.calls,
            "up_s": round(now - seat.since, 3),
            "memory": held_bytes(process.pid),
        }

    def _ask(self, job: _Job) -> bool:
        """Give the job to a process that has nothing to do; False when none has."""
        while self._idle:
            process = self._idle.pop()
            if not process.alive:
                continue
            try:
                process.ask(job.rows, job.answer)
            except (TypeError, ValueError, OverflowError, NotImplementedError, RecursionError):
                self._ask_in_part(process, job)
            return True
        return False

    def _ask_in_part(self, process: Process, job: _Job) -> None:
        """Ask for the rows that can be sent; the others are refused, each by itself."""
        replies = [self._checker.sendable(row) for row in job.rows]
        rows = [row for row in replies if not isinstance(row, ModelError)]
        if not rows:
            job.answer.set_result(replies)
            self._free(process)
            return

        def answered(some: Answer) -> None:
            if job.answer.done() or some.cancelled():
                return
            if (error := some.exception()) is not None:
                job.answer.set_exception(error)
                return
            said = iter(some.result())
            job.answer.set_result([each if isinstance(each, ModelError) else next(said) for each in replies])

        part: Answer = asyncio.get_running_loop().create_future()
        part.add_done_callback(answered)
        process.ask(rows, part)

    def _free(self, process: Process) -> None:
        """Give the process the next call that somebody still waits for."""
        self._idle.append(process)
        while self._queue:
            job = self._queue.popleft()
            if not job.answer.done():
                if not self._ask(job):
                    self._queue.appendleft(job)
                return

    def _take(self, seat: _Seat, process: Process) -> None:
        was_up = self.up
        seat.process, seat.since = process, self._clock.monotonic()
        self._free(process)
        if not was_up and seat.keeper is not None:
            self.on_change(True)

    async def _started(self, brief: bool) -> tuple[Process, Ready]:
        """Start a process and wait until it may serve.

        Raises:
            ConfigError, ContractError, Ended: it may not; it is gone.
        """
        process = Process(self._environment, float(self.settings.stuck), self._free)
        said = await process.become_ready(self._greeting.message(brief), float(self.settings.start))
        if isinstance(said, Ready) and brief and said.labels != self.labels:
            said = Refused("contract", f"its labels are now {said.labels}, they were {self.labels}: reload the config")
        if isinstance(said, Refused):
            process.kill()
            raise _refusal(said)
        return process, said

    async def _keep(self, seat: _Seat) -> None:
        """See to it that a process sits in the seat."""
        while True:
            process = seat.process
            if process is not None:
                await asyncio.wait((process.ended, process.heavy), return_when=asyncio.FIRST_COMPLETED)
                if not process.ended.done():
                    await self._relieve(seat, process)
                    continue
                self._lost(seat, process)
            pause = pause_s(seat.state)
            now = self._clock.monotonic()
            seat.due = now + pause + self._start_s
            if not self.up:
                self._give_up_waiting(now)
            await asyncio.sleep(pause)
            began = self._clock.monotonic()
            seat.due = began + self._start_s
            fresh = await self._try_start(seat)
            if fresh is not None:
                self._start_s = self._clock.monotonic() - began
                self._take(seat, fresh)
                _log.warning("model %s: process %d is in service after %.2f s", self.name, fresh.pid, self._start_s)

    async def _try_start(self, seat: _Seat) -> Process | None:
        try:
            return (await self._started(brief=True))[0]
        except (ConfigError, ContractError, Ended, OSError) as error:
            seat.state = ended(seat.state, 0.0)
            self.restarts["start"] += 1
            self.why = str(error)
            told = (self.name, seat.state.ends, pause_s(seat.state), error)
            _log.error("model %s: a process did not start (%d in a row, the next in %g s): %s", *told)
            return None

    def _lost(self, seat: _Seat, process: Process) -> None:
        """Take note that a process in service has ended."""
        now = self._clock.monotonic()
        seat.process, seat.state = None, ended(seat.state, now - seat.since)
        if process in self._idle:
            self._idle.remove(process)
        self.restarts["stuck" if process.stuck else "ended"] += 1
        self.why = f"process {process.pid} {process.ended.result()}"
        told = (self.name, self.why, process.calls, seat.state.ends, pause_s(seat.state))
        _log.error("model %s: %s after %d calls (%d in a row); the next is started in %g s", *told)
        if not self.up:
            self.on_change(False)

    async def _relieve(self, seat: _Seat, process: Process) -> None:
        """Put a fresh process in the place of one that holds too much memory, which serves until then."""
        _log.warning("model %s: process %d holds much memory and is replaced", self.name, process.pid)
        fresh = await self._try_start(seat)
        if fresh is None:
            process.heavy = asyncio.get_running_loop().create_future()  # the next answer tells again
            await asyncio.wait((process.ended,), timeout=max(1.0, pause_s(seat.state)))
            return
        self.restarts["memory"] += 1
        if process in self._idle:
            self._idle.remove(process)
        leaving = asyncio.ensure_future(_left(process))
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)
        self._take(seat, fresh)

    def _expected_s(self, now: float) -> float:
        """Return the seconds until a process is expected; 0 when one serves."""
        if self.up or self._closed:
            return 0.0
        return max(0.0, min(seat.due for seat in self._seats) - now)

    def _give_up_waiting(self, now: float) -> None:
        if self._expected_s(now) > WAIT_S:
            self._fail_queue(f"no process serves now: {self.why}", self._expected_s(now))

    def _fail_queue(self, why: str, retry_after_s: float | None = None) -> None:
        while self._queue:
            job = self._queue.popleft()
            if not job.answer.done():
                job.answer.set_exception(ModelError("unavailable", why, retry_after_s=retry_after_s))


async def _left(process: Process) -> None:
    """Let the process go; kill it when it stays."""
    process.retire()
    with contextlib.suppress(asyncio.CancelledError):
        if process.busy:
            await asyncio.wait((process.ended,), timeout=process.stuck_s)
        await asyncio.wait((process.ended,), timeout=_LEAVE_S)
    if not process.ended.done():
        process.kill()
        await asyncio.wait((process.ended,), timeout=_LEAVE_S)


def _late(answer: Answer, timeout_s: float) -> None:
    if not answer.done():
        answer.set_exception(ModelError("timeout", f"no answer within {timeout_s:.3f} s"))


def _refusal(said: Refused) -> ConfigError | ContractError:
    if said.kind == "contract":
        return ContractError(said.message)
    return ConfigError(
        [Problem(path, None, message) for path, message in said.problems] or [Problem("", None, said.message)]
    )
