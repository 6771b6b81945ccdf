"""Health checks: what they say about a model, when the next one is due, and whom they may take out. Pure.

Sources: the thresholds of Envoy's health checks and the ejection limit of its outlier detection; marks from real calls as
in Finagle.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct

from rheostat.chance import chance
from rheostat.types.duration import Duration

_LONGEST = 8.0
_JITTER = 0.2


class HealthSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Checks that ask whether a model is well. Every `interval` (0: none; a tenth more or less, so that checks do not keep
    step) it is tried, and a check without a good answer within `timeout` has failed. `unhealthy` failed ones in a row take
    it out, unless `health.max_ejected` forbids it; `healthy` good ones in a row bring it back, under its ramp. While it is
    out, the wait doubles with every failed check, up to 8 times `interval`. A request that the model answers counts as a
    good check.

    `url` is fetched with GET, and any 2xx status is good; the model's `api_key` and `headers` are sent along only if it
    has the scheme, host and port of the model itself. Without `url` the backend is asked in its own way where it
    has one (`openai`: GET `base_url`/models), else the model answers the first row of its `probe`.
    """

    interval: Duration = Duration(0.0)
    timeout: Duration = Duration(1.0)
    unhealthy: int = 3
    healthy: int = 2
    url: str = ""

    def __post_init__(self) -> None:
        for name in ("unhealthy", "healthy"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be 1 or more, got {getattr(self, name)}")
        if not self.timeout > 0.0:
            raise ValueError("`timeout` must be more than 0")
        if self.url and not self.url.startswith(("http://", "https://")):
            raise ValueError("`url` must begin with http:// or https://")


class EjectionSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What health checks may do together: of the models of a route, at most the share `max_ejected` may be out because of
    them; models whose breaker is open count too. Those that must stay in are asked although they are unhealthy."""

    max_ejected: float = 0.5

    def __post_init__(self) -> None:
        if not 0.0 <= self.max_ejected <= 1.0:
            raise ValueError(f"`max_ejected` must lie in [0, 1], got {self.max_ejected:g}")


class HealthState(Struct, frozen=True, gc=False):
    """What the checks say. `failed` and `good` are counted in a row; `since` is when `healthy` last changed, `why` the last
    failure, `checks` how many there were."""

    healthy: bool = True
    failed: int = 0
    good: int = 0
    since: float = 0.0
    why: str = ""
    checks: int = 0


UNCHECKED = HealthState()


def passed(state: HealthState, settings: HealthSettings, now: float) -> HealthState:
    """A check was good."""
    checks = state.checks + 1
    if state.healthy:
        return HealthState(True, 0, 0, state.since, "", checks)
    good = state.good + 1
    if good >= settings.healthy:
        return HealthState(True, 0, 0, now, "", checks)
    return HealthState(False, 0, good, state.since, state.why, checks)


def failed(state: HealthState, settings: HealthSettings, why: str, now: float) -> HealthState:
    """A check failed, because of `why`."""
    count, checks = state.failed + 1, state.checks + 1
    if state.healthy and count >= settings.unhealthy:
        return HealthState(False, count, 0, now, why, checks)
    return HealthState(state.healthy, count, 0, state.since, why, checks)


def served(state: HealthState, settings: HealthSettings, began: float, now: float) -> HealthState:
    """A request that started at `began` was answered by the model: as good as a check, unless it is older than the
    verdict."""
    if state is UNCHECKED or (state.healthy and not state.failed) or began < state.since:
        return state
    return passed(state, settings, now)


def delay_s(state: HealthState, settings: HealthSettings, name: str) -> float:
    """Return the seconds until the next check of the model `name`: the interval, longer while it stays unhealthy."""
    longer = 1.0
    if not state.healthy and state.failed > settings.unhealthy:
        longer = min(_LONGEST, 2.0 ** min(state.failed - settings.unhealthy, 10))
    jitter = 1.0 + _JITTER * (chance(f"health/{name}", str(state.checks)) - 0.5)
    return settings.interval * longer * jitter


def ejected(
    unhealthy: Mapping[str, float], out: Collection[str], groups: Iterable[Collection[str]], max_ejected: float
) -> frozenset[str]:
    """Return the unhealthy models that are to get no traffic.

    Args:
        unhealthy: since when each is; whoever became unhealthy first goes first.
        out: those that their breaker keeps out already.
        groups: the models of each route.
        max_ejected: the share of every group that may be out, in [0, 1].
    """
    sets = [frozenset(group) for group in groups]
    gone: set[str] = set(out)
    chosen: set[str] = set()
    for name in sorted(unhealthy, key=lambda name: (unhealthy[name], name)):
        after = gone | {name}
        if name in out or all(len(after & group) <= max_ejected * len(group) for group in sets if name in group):
            chosen.add(name)
            gone = after
    return frozenset(chosen)
