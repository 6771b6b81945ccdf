"""The calls that wait for one of a model's processes, and the processes that wait for a call."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from rheostat.errors import ModelError
from rheostat.pool.backend import Row
from rheostat.pool.worker.message import UNSENDABLE, Writer
from rheostat.pool.worker.process import Answer, Process


class Job(NamedTuple):
    """Rows, and where their answer is awaited."""

    rows: Sequence[Row]
    answer: Answer


class Line:
    """Gives calls to processes in order; one whose caller leaves before it was begun is never computed."""

    def __init__(self) -> None:
        self._idle: list[Process] = []
        self._queue: deque[Job] = deque()
        self._checker = Writer()

    @property
    def waiting(self) -> int:
        """How many calls wait."""
        return sum(not job.answer.done() for job in self._queue)

    def ask(self, job: Job) -> bool:
        """Give the job to a process that has nothing to do; False when none has."""
        while self._idle:
            process = self._idle.pop()
            if not process.alive:
                continue
            try:
                process.ask(job.rows, job.answer)
            except UNSENDABLE:
                self._ask_in_part(process, job)
            return True
        return False

    def wait(self, job: Job) -> None:
        """Have the job wait for its turn."""
        self._queue.append(job)

    def free(self, process: Process) -> None:
        """Give the process the next call that somebody still waits for."""
        self._idle.append(process)
        while self._queue:
            job = self._queue.popleft()
            if not job.answer.done():
                if not self.ask(job):
                    self._queue.appendleft(job)
                return

    def forget_gone(self) -> None:
        """Let go of processes that take no more calls."""
        self._idle = [process for process in self._idle if process.alive]

    def fail(self, why: str, retry_after_s: float | None = None) -> None:
        """Tell everybody who waits that it is in vain."""
        while self._queue:
            job = self._queue.popleft()
            if not job.answer.done():
                job.answer.set_exception(ModelError("unavailable", why, retry_after_s=retry_after_s))

    def _ask_in_part(self, process: Process, job: Job) -> None:
        """Ask for the rows that can be sent; the others are refused, each by itself."""
        replies = [self._checker.sendable(row) for row in job.rows]
        rows = [row for row in replies if not isinstance(row, ModelError)]
        if not rows:
            job.answer.set_result(replies)
            self.free(process)
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
