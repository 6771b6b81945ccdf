"""A budget for a stream of requests, and the threshold that keeps what is spent at it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping
from math import exp, isfinite, log
from typing import Literal

from msgspec import Struct

from rheostat.resilience.allowance import DAY_S, Allowance, AllowanceSettings
from rheostat.resilience.holds import short_key

_FARTHEST = 12.0  # where the threshold stops, in log-odds: .999994, and 0 below .000006; so it never takes long to come back
_LOWEST = -_FARTHEST - 4.0  # further than a step leads, so that no call goes uncounted


class SpendSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A budget that holds over many requests. Policies read it as the signal `spend.NAME`: a threshold in [0, 1] for the
    confidence under which a request may go on to a dearer model (`cascade: {threshold: spend.NAME}`).

    `share` is the share of requests that may ask any of `models`; `cost` is the mean cost of a request; one of the two moves
    the threshold, which begins at `start`, after every request by up to `step` log-odds. `day` is the cost that a day (UTC)
    may take: once it is spent the threshold is 0, and the signal `spend.NAME.left` (0 or more) says what is left. With
    `per: tenant` every tenant has a budget of its own. `limits` are what may be used up at all, whatever the policy reads.
    """

    share: float | None = None
    cost: float | None = None
    models: tuple[str, ...] = ()
    day: float | None = None
    limits: AllowanceSettings | None = None
    per: Literal["all", "tenant"] = "all"
    start: float = 0.9
    step: float = 0.1

    def __post_init__(self) -> None:
        if not self.moves and self.limits is None:
            raise ValueError("nothing is limited: give `share`, `cost`, `day` or `limits`")
        if self.share is not None and self.cost is not None:
            raise ValueError("`share` and `cost` would both move the threshold; keep one")
        if self.share is not None and not 0.0 < self.share < 1.0:
            raise ValueError(f"`share` must lie between 0 and 1, got {self.share}")
        if (self.share is None) != (not self.models):
            raise ValueError("`share` and `models` belong together: the share of requests that may ask one of `models`")
        for name, value in (("cost", self.cost), ("day", self.day)):
            if value is not None and not (isfinite(value) and value > 0.0):
                raise ValueError(f"`{name}` must be a finite number above 0, got {value}")
        if not 0.0 < self.start < 1.0:
            raise ValueError(f"`start` must lie between 0 and 1, got {self.start}")
        if not 0.0 < self.step <= 2.0:
            raise ValueError(f"`step` must lie in (0, 2], got {self.step}")

    @property
    def moves(self) -> bool:
        """Whether there is a threshold that moves; with `limits` alone there is none."""
        return self.share is not None or self.cost is not None or self.day is not None


class SpendState(Struct, frozen=True):
    """Where one budget stands: the threshold's log-odds, the day (since 1970) and its cost, and what was used in all.

    `used` counts in the unit of the budget: requests that asked one of the models, or the cost in units of the dearest.
    """

    odds: float
    day: int = 0
    spent: float = 0.0
    requests: int = 0
    used: float = 0.0


class Spend(Struct, frozen=True, kw_only=True):
    """One budget as it is kept: its settings and `unit`, the cost of the dearest model, by which costs are measured.

    The rule is integral control: after each request the log-odds of the threshold move by `step` times (budget - used).
    Over any stretch of n requests the realised mean therefore differs from the budget by exactly (what the log-odds moved)
    / (step x n), whatever the traffic does, as long as the threshold is not at the upper end of its range; there less is
    used. Beyond a `share` never more than 1 + (12 + log-odds of `start`) / step requests are used (online quantile tracking;
    Gibbs and Candes 2021 prove the same of adaptive conformal inference). Both hold for calls that the threshold decides.
    """

    name: str
    settings: SpendSettings
    unit: float = 1.0

    @property
    def signals(self) -> tuple[str, ...]:
        """The names of the signals that this budget makes."""
        names = (f"spend.{self.name}",)
        return names if self.settings.day is None else (*names, f"{names[0]}.left")

    def begin(self) -> SpendState:
        """Return the state before the first request."""
        return SpendState(log(self.settings.start / (1.0 - self.settings.start)))

    def told(self, state: SpendState, wall: float) -> dict[str, float]:
        """Return the signals at `wall`, in seconds since 1970."""
        threshold = _threshold(state)
        limit = self.settings.day
        if limit is None:
            return {self.signals[0]: threshold}
        left = max(0.0, limit - (state.spent if state.day == _day(wall) else 0.0))
        names = self.signals
        return {names[0]: threshold if left > 0.0 else 0.0, names[1]: left}

    def after(self, state: SpendState, called: Collection[str], cost: float, wall: float) -> SpendState:
        """Return the state after a request that asked the models `called` at `cost` and ended at `wall`."""
        settings = self.settings
        day = _day(wall)
        spent = (state.spent if day == state.day else 0.0) + cost
        odds, used = state.odds, 0.0
        if settings.share is not None:
            used = float(any(model in called for model in settings.models))
            odds += settings.step * (settings.share - used)
        elif settings.cost is not None:
            used = cost / self.unit
            odds += settings.step * (settings.cost / self.unit - used)
        odds = min(_FARTHEST, max(_LOWEST, odds))
        return SpendState(odds, day, spent, state.requests + 1, state.used + used)


class Spends:
    """Remember where budgets stand, for at most `limit` (1 or more) of them; the least recently used begin anew."""

    def __init__(self, limit: int = 10_000) -> None:
        if limit < 1:
            raise ValueError(f"`limit` must be 1 or more, got {limit}")
        self.limit = limit
        self._states: OrderedDict[str, SpendState] = OrderedDict()

    def signals(self, spends: Collection[Spend], tenant: str | None, wall: float) -> dict[str, float]:
        """Return the signals of the budgets that hold for a request of this tenant."""
        found: dict[str, float] = {}
        for spend in spends:
            found.update(spend.told(self._states.get(_key(spend, tenant)) or spend.begin(), wall))
        return found

    def note(self, spends: Collection[Spend], tenant: str | None, called: Collection[str], cost: float, wall: float) -> None:
        """Take in what a request that has ended called and cost; one that called nothing is not counted."""
        if not called:
            return
        for spend in spends:
            key = _key(spend, tenant)
            self._states[key] = spend.after(self._states.get(key) or spend.begin(), called, cost, wall)
            self._states.move_to_end(key)
            while len(self._states) > self.limit:
                self._states.popitem(last=False)

    def threshold(self, spend: Spend) -> float:
        """Return where the threshold of a budget for all tenants stands, in [0, 1]."""
        return _threshold(self._states.get(_key(spend, None)) or spend.begin())

    def used(self, spend: Spend) -> float:
        """Return the mean use so far of a budget for all tenants: a share of requests, or a cost; 0 before the first."""
        state = self._states.get(_key(spend, None))
        if state is None or not state.requests:
            return 0.0
        return state.used / state.requests * (1.0 if spend.settings.share is not None else spend.unit)


def spends_of(
    settings: Mapping[str, SpendSettings], costs: Collection[float], read: Collection[str] | None = None
) -> dict[str, Spend]:
    """Return the budgets ready to be kept, by name; `costs` are those of one call to each model.

    With `read`, names of signals, only the budgets that make one of them.
    """
    unit = max(costs, default=0.0) or 1.0
    found = {name: Spend(name=name, settings=each, unit=unit) for name, each in settings.items() if each.moves}
    return {name: each for name, each in found.items() if read is None or not set(each.signals).isdisjoint(read)}


def allowances_of(settings: Mapping[str, SpendSettings], route: str, cost: float) -> tuple[Allowance, ...]:
    """Return the budgets whose limits hold on a route; a request to it is expected to cost `cost`, until more is known."""
    return tuple(
        Allowance(name=name, settings=each.limits, per_tenant=each.per == "tenant", cost=cost)
        for name, each in settings.items()
        if each.limits is not None and (not each.limits.routes or route in each.limits.routes)
    )


def _threshold(state: SpendState) -> float:
    return 1.0 / (1.0 + exp(-state.odds)) if state.odds > -_FARTHEST else 0.0


def _key(spend: Spend, tenant: str | None) -> str:
    """Where a budget's state is kept; one that counts another thing after a reload begins anew."""
    counted = "share" if spend.settings.share is not None else f"cost of {spend.unit:g}"
    whose = "" if spend.settings.per == "all" else f"/{short_key(tenant or '')}"
    return f"{spend.name}/{counted}{whose}"


def _day(wall: float) -> int:
    return int(wall // DAY_S)
