"""What the config may say about a model's own processes."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from rheostat.types.bytes import bytes_of
from rheostat.types.duration import Duration

Count = Annotated[int, Meta(ge=1, le=256)]


class WorkerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Processes of a model's own, `count` of them, each with the whole model in it. `workers: 2` is short for `{count: 2}`.

    `threads` bounds the threads of the numeric libraries inside one call (default: the model's own `threads`, else 1).
    `memory` is the ceiling of one process for what it allocates itself, such as `2GiB`: beyond it an allocation fails, and
    so does the request that asked for it; a process that holds more than nine tenths of it after a request is replaced by
    a fresh one without a gap. Files that are only read do not count; torch maps its weights copy on write, so those do.
    `cpus` are the CPUs a process may run on (default: those of the gateway), `nice` is added to its niceness. A process
    that does not answer a call for `stuck` is killed and replaced; it has `start` to load the model. One that ended is
    started again at once, one that keeps ending after pauses that double from 0.5 s up to `backoff`.
    """

    count: Count = 1
    threads: Annotated[int, Meta(ge=1)] | None = None
    memory: str | None = None
    cpus: tuple[Annotated[int, Meta(ge=0)], ...] = ()
    nice: Annotated[int, Meta(ge=0, le=19)] = 0
    stuck: Duration = Duration(10.0)
    start: Duration = Duration(60.0)
    backoff: Duration = Duration(30.0)

    def __post_init__(self) -> None:
        for name in ("stuck", "start", "backoff"):
            if not getattr(self, name) > 0.0:
                raise ValueError(f"`{name}` must be more than 0")
        if len(set(self.cpus)) != len(self.cpus):
            raise ValueError("`cpus` names a CPU twice")
        if self.memory is not None:
            try:
                size = self.memory_bytes
            except ValueError as error:
                raise ValueError(f"`memory`: {error}") from None
            if size < 1 << 24:
                raise ValueError(f"`memory` must be 16MiB or more, got {self.memory}")

    @property
    def memory_bytes(self) -> int:
        """The ceiling in bytes; 0 for none."""
        return 0 if self.memory is None else bytes_of(self.memory)


def processes_of(run: str, workers: int | WorkerSettings | None) -> WorkerSettings | None:
    """Return the processes that a model's `run` and `workers` ask for; None when they ask for none."""
    if workers is None:
        return WorkerSettings() if run == "process" else None
    return WorkerSettings(count=workers) if isinstance(workers, int) else workers
