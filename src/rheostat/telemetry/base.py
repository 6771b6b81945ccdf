"""Where route records go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from rheostat.types import Feedback, RouteRecord

Entry = RouteRecord | Feedback


@runtime_checkable
class Sink(Protocol):
    """Stores entries. Called from one background thread only, in batches, in order."""

    def write(self, entries: Sequence[Entry]) -> None:
        """Store them durably enough that a reader sees them; raises OSError or the store's own error when it cannot."""

    def close(self) -> None:
        """Flush and give back what was opened."""
