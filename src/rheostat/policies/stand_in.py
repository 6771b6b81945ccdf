"""What counts in the place of a model that failed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from rheostat.policies.base import History, Policy, found, walk
from rheostat.types import Context, Request

DROP, MEAN = "drop", "mean"
Averaged = tuple[tuple[str, str | None], ...]
"""Models, each with the field of meta whose value is the segment of a request (None: all are one segment)."""


class StandIn(Struct, frozen=True):
    """How a policy stands in for its models for this request: DROP, MEAN, or the name of another model."""

    ctx: Context
    way: str = DROP
    segment: str | None = None

    def asks(self, missing: Iterable[str]) -> str:
        """Return the model that is to answer for those that failed, or nothing."""
        gone = tuple(missing)
        return self.way if gone and self.way not in (DROP, MEAN) and self.way not in gone else ""

    def of(self, model: str, history: History) -> tuple[Mapping[str, float] | None, str]:
        """Return the scores that stand in for `model`, if any, and what to say of it."""
        if self.way == DROP:
            return None, f"without {model}"
        if self.way != MEAN:
            other = found(history, self.way)
            if other is None or other.prediction is None:
                return None, f"without {model}: {self.way} failed too"
            said = other.prediction
            return said.scores or {said.label: 1.0}, f"{self.way} stands in for {model}"
        view = self.ctx.pool.get(model)
        means = view.means if view is not None else {}
        part = segment_of(self.ctx.request, self.segment)
        scores = means.get(part) or means.get("")
        if scores is None:
            return None, f"without {model}: there is no mean of it yet"
        return scores, f"its mean stands in for {model}" + (f" ({self.segment})" if part and part in means else "")


def segment_of(request: Request, field: str | None) -> str:
    """Return the segment of a request, or "" where it carries none."""
    value = request.meta.get(field) if field is not None else None
    return "" if value is None or value == "" else f"{field}={value}"


def averaged_of(policy: Policy) -> dict[str, tuple[str | None, ...]]:
    """Return the models whose running means `policy` and its nested policies read, each with its fields of segments."""
    models: dict[str, dict[str | None, None]] = {}
    for part in walk(policy):
        method = getattr(part, "averaged", None)
        for model, field in method() if callable(method) else ():
            models.setdefault(model, {})[field] = None
    return {model: tuple(fields) for model, fields in models.items()}
