"""What the metrics page says of budgets with limits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rheostat.resilience.allowance import Allowance, Allowances
from rheostat.telemetry.series import Family, counter_samples


def allowance_families(allowances: Iterable[Allowance], kept: Allowances, now: float, wall: float) -> Iterator[Family]:
    """Yield how far each limit is used, of a budget that every tenant has for itself by the one who used most."""
    used: dict[tuple[str, ...], float] = {}
    exceeded: dict[tuple[str, ...], float] = {}
    for allowance in {each.name: each for each in allowances}.values():
        most = dict.fromkeys(allowance.shares(allowance.begin(now), now, wall), 0.0)
        for state in kept.of(allowance):
            for limit, share in allowance.shares(state, now, wall).items():
                most[limit] = max(most[limit], share)
        used.update(((allowance.name, limit), share) for limit, share in most.items())
        exceeded[allowance.name,] = float(kept.exceeded.get(allowance.name, 0))
    told = "Share of a budget's limit that is used."
    yield Family("rheostat_budget_used", "gauge", told, counter_samples(("budget", "limit"), used))
    told = "Requests that found a budget used up: refused, or held to cheaper models."
    yield Family("rheostat_budget_exceeded_total", "counter", told, counter_samples(("budget",), exceeded))
