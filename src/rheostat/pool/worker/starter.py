"""Brings a model's processes into service, each with the same model as the first."""

from __future__ import annotations

import os
from collections.abc import Callable

from rheostat.clock import Clock
from rheostat.errors import ConfigError, ContractError, Problem
from rheostat.pool.worker.hello import Hello
from rheostat.pool.worker.message import Ready, Refused
from rheostat.pool.worker.process import Process

CHANGED = "have changed since the config was taken up: reload the config"


class Starter:
    """Starts processes and tells them what to open.

    Args:
        unchanged: says whether the files that the model's settings name are still those of the first process.
        freed: called by a process that could take the next call.
    """

    def __init__(
        self, greeting: Hello, unchanged: Callable[[], bool], freed: Callable[[Process], None], clock: Clock
    ) -> None:
        self.took_s = 1.0  # how long the last start took
        self.first: Ready | None = None
        self._greeting = greeting
        self._unchanged = unchanged
        self._freed = freed
        self._clock = clock

    @property
    def outdated(self) -> bool:
        """True when the code that the model was imported from has changed on disk."""
        return self.first is not None and any(_stamp(path) != then for path, then in self.first.code.items())

    async def start(self) -> Process:
        """Start a process and wait until it has loaded the model; the first one holds it to its whole contract.

        Raises:
            ConfigError, ContractError: the model may not serve, or is not what it was.
            Ended: the process ended, or took too long.
            OSError: the system gives none.
        """
        if self.first is not None and not self._unchanged():
            raise ContractError(f"the model's files {CHANGED}")
        if self.outdated:
            raise ContractError(f"the files of its code {CHANGED}")
        worker, began = self._greeting.worker, self._clock.monotonic()
        process = Process(self._greeting.environment, float(worker.stuck), self._freed)
        said = await process.become_ready(self._greeting.message(brief=self.first is not None), float(worker.start))
        if isinstance(said, Ready) and self.first is not None and said.labels != self.first.labels:
            said = Refused("contract", f"its labels are now {said.labels}, they were {self.first.labels}: reload the config")
        if isinstance(said, Refused):
            await process.end()
            raise _refusal(said)
        self.first = self.first or said
        self.took_s = self._clock.monotonic() - began
        return process


def _stamp(path: str) -> tuple[int, int, int]:
    try:
        stat = os.stat(path)
    except OSError:
        return (0, 0, 0)
    return (stat.st_mtime_ns, stat.st_size, stat.st_ino)


def _refusal(said: Refused) -> ConfigError | ContractError:
    if said.kind == "contract":
        return ContractError(said.message)
    return ConfigError(
        [Problem(path, None, message) for path, message in said.problems] or [Problem("", None, said.message)]
    )
