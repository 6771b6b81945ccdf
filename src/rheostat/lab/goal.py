"""What a tuned policy has to keep to."""

from __future__ import annotations

from msgspec import Struct

from rheostat.errors import RheostatError
from rheostat.types.duration import Duration


class GoalError(RheostatError):
    """The goal makes no sense, or no setting reaches it; the message says what can be reached."""

    type = "goal_error"


class Goal(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Limits that a setting must keep on the rows it is chosen on.

    `max_share` is the share of requests that may call the last model, in [0, 1]. `min_quality` is the accuracy to reach,
    in [0, 1]; `min_relative_quality` the same as a share of the last model's own accuracy (0.95: 95 % of it). `max_cost`
    is per request in the pool's unit, `max_latency` the 95th percentile. With `sure` (the default) a limit must be kept
    by the one-sided 95 % bound and not only by the mean, because a threshold that just meets it on one set misses it on
    the next one half of the time.

    With a quality to reach, the cheapest setting that reaches it is chosen; otherwise the best quality within the limits.
    Equal settings: the cheaper one, then the one with fewer calls of the last model, then the higher threshold.
    """

    max_share: float | None = None
    min_quality: float | None = None
    min_relative_quality: float | None = None
    max_cost: float | None = None
    max_latency: Duration | None = None
    sure: bool = True

    def __post_init__(self) -> None:
        for name in ("max_share", "min_quality"):
            value = getattr(self, name)
            if value is not None and not 0.0 <= value <= 1.0:
                raise ValueError(f"`{name}` must lie in [0, 1], got {value} (write 0.2 for 20 %)")
        if self.min_relative_quality is not None and not 0.0 < self.min_relative_quality <= 2.0:
            raise ValueError(f"`min_relative_quality` must lie in (0, 2], got {self.min_relative_quality}")
        if self.max_cost is not None and not self.max_cost >= 0.0:
            raise ValueError(f"`max_cost` must be 0 or more, got {self.max_cost}")

    @property
    def wants_quality(self) -> bool:
        """True when there is a quality to reach, so that the cheapest such setting is looked for."""
        return self.min_quality is not None or self.min_relative_quality is not None

    def words(self) -> str:
        """Return the goal as one phrase."""
        parts = []
        if self.max_share is not None:
            parts.append(f"at most {self.max_share:.1%} calls of the last model")
        if self.min_quality is not None:
            parts.append(f"accuracy of at least {self.min_quality:.2%}")
        if self.min_relative_quality is not None:
            parts.append(f"at least {self.min_relative_quality:.1%} of the last model's accuracy")
        if self.max_cost is not None:
            parts.append(f"cost of at most {self.max_cost:g} a request")
        if self.max_latency is not None:
            parts.append(f"P95 latency of at most {self.max_latency * 1000:g} ms")
        return " and ".join(parts) or "the best accuracy"
