"""What a batched model has done so far."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final

ROWS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
WAIT_SECONDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)


@dataclass(slots=True)
class BatchTally:
    """Counts since the model was opened. `executions` are calls to it, `inferences` the rows that went through it; `rows`
    and `waits` count batches by size and rows by the time they waited, in the buckets of ROWS and WAIT_SECONDS."""

    executions: int = 0
    inferences: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    dropped: int = 0  # rows that could not be answered in time any more
    isolated: int = 0  # further calls that found out which row of a failed batch was to blame
    rows: list[int] = field(default_factory=lambda: [0] * (len(ROWS) + 1))
    rows_sum: int = 0
    waits: list[int] = field(default_factory=lambda: [0] * (len(WAIT_SECONDS) + 1))
    waits_sum: float = 0.0

    def goes(self, size: int, reason: str) -> None:
        """A batch of `size` rows goes."""
        self.rows[bisect_left(ROWS, size)] += 1
        self.rows_sum += size
        self.reasons[reason] = self.reasons.get(reason, 0) + 1

    def waited(self, seconds: float) -> None:
        """A row waited this long for its batch to go."""
        self.waits[bisect_left(WAIT_SECONDS, seconds)] += 1
        self.waits_sum += seconds
