"""A model of this process that is in memory only while it is wanted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

from rheostat.pool.backend import Backend, Reply, Row
from rheostat.resilience.residency import Holding
from rheostat.types import Failure

if TYPE_CHECKING:
    from rheostat.pool.residency import Residency


@dataclass(slots=True)
class Tally:
    """What happened to the on-demand models of one name so far. `load_s` is the sum over all loads in seconds, with making
    room; `waits` calls waited for a load, `wait_s` seconds in all."""

    loads: int = 0
    failures: int = 0
    evictions: int = 0
    load_s: float = 0.0
    waits: int = 0
    wait_s: float = 0.0


@dataclass(eq=False, slots=True)
class OnDemand:
    """A backend that loads another one when it is asked; `Residency.host` makes it, and unloads that when room is needed.

    Loading may take long: calls that come meanwhile wait for the one load. While the model is being unloaded, after a load
    that failed, and when there is no room for it, calls get `unavailable`.
    """

    residency: Residency
    name: str
    key: str
    holding: Holding
    reopen: Callable[[], Backend]
    tally: Tally
    labels: tuple[str, ...] | None = None
    backend: Backend | None = None
    why: str = ""  # what the last load that failed, or found no room, said
    sizes: list[int] = field(default_factory=list)  # the last measures, in bytes
    closed: bool = False

    @property
    def loading(self) -> bool:
        """True while its weights are on their way."""
        return self.holding.state == "loading"

    @property
    def loaded(self) -> bool:
        """True while it can answer at once."""
        return self.holding.state == "loaded"

    def wait_s(self, now: float) -> float:
        """Return the seconds for which no load is tried, after one that failed or found no room; 0 when it may be asked."""
        holding = self.holding
        return holding.retry_at - now if holding.state == "unloaded" and holding.retry_at > now else 0.0

    def excused(self, failure: Failure) -> Failure:
        """Return what a failed attempt was: a model is not to blame for a call that ran out of time during a load."""
        if failure.kind != "timeout" or not self.loading:
            return failure
        return Failure("unavailable", f"{failure.message}: it is being loaded")

    def status(self, now: float) -> dict[str, Any]:
        """Return what people ask for, as plain values; `used_s_ago` is None while it was never used."""
        holding, tally = self.holding, self.tally
        return {
            "state": holding.state,
            "bytes": holding.bytes,
            "pinned": holding.pinned,
            "users": holding.users,
            "used_s_ago": None if holding.used_at == -inf else round(now - holding.used_at, 3),
            "loads": tally.loads,
            "evictions": tally.evictions,
            "load_failures": tally.failures,
            "why": self.why if self.wait_s(now) else "",
        }

    def predict(self, rows: Sequence[Row]) -> Sequence[Reply]:
        """Answer every row, loading the model first if it is not in memory.

        Raises:
            ModelError: `unavailable`, or what the model itself raises.
        """
        backend = self.residency.enter(self)
        try:
            return backend.predict(rows)
        finally:
            del backend  # or it would outlive its own unloading
            self.residency.leave(self)

    def close(self) -> None:
        """Give it up for good: its memory is free when the calls that use it have ended."""
        self.residency.remove(self)
