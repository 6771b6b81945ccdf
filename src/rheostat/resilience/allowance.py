"""What a budget allows in a minute or a day: held ready before a request is answered, settled by what it really took."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from math import inf, isfinite

from msgspec import Struct, structs

from rheostat.resilience.holds import short_key

DAY_S, MINUTE_S = 86_400.0, 60.0
_SOON_S = 1.0  # when to come back where only requests in flight are in the way
_PACE = 0.1  # how much the last request counts in the running means


class AllowanceSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may be used up, by the whole budget or by each tenant (`per`): tokens in a minute (a minute's worth may come at
    once, then they come back evenly), tokens and cost in a day (UTC).

    Before a request is answered its estimate is held ready: the tokens of its input, and for the answer what it asks for
    (`max_tokens`), or the mean so far. Afterwards what its calls really took counts. A request without room gets 429 with
    Retry-After, or with `max_cost` goes on, and may cost no more than that: dearer models are not asked. Answers from the
    cache take nothing. It holds on `routes` (default: all) and for `tenants` (default: all).
    """

    tokens_per_minute: int | None = None
    tokens_per_day: int | None = None
    cost_per_day: float | None = None
    max_cost: float | None = None
    routes: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        given = {"tokens_per_minute": self.tokens_per_minute, "tokens_per_day": self.tokens_per_day,
                 "cost_per_day": self.cost_per_day}  # fmt: skip
        if all(value is None for value in given.values()):
            raise ValueError(f"nothing is limited: give {', '.join(f'`{name}`' for name in given)}")
        for name, value in (*given.items(), ("max_cost", self.max_cost)):
            if value is not None and not (isfinite(value) and value > 0):
                raise ValueError(f"`{name}` must be a finite number above 0, got {value}")


class AllowanceState(Struct, frozen=True):
    """What is left and what is held: `level` of the minute's tokens at `at` (below 0: more was used than held), the `day`
    (since 1970) with its `tokens` and `cost`, what requests in flight hold, and the running means of a request."""

    level: float
    at: float
    day: int = 0
    tokens: float = 0.0
    cost: float = 0.0
    held_tokens: float = 0.0
    held_cost: float = 0.0
    answer: float = 0.0
    mean_cost: float = 0.0


class Allowance(Struct, frozen=True, kw_only=True):
    """One budget's limits as they are kept on a route; pure. `cost` is that of a request of which nothing is known yet."""

    name: str
    settings: AllowanceSettings
    per_tenant: bool = False
    cost: float = 0.0

    def holds_for(self, tenant: str | None) -> bool:
        """Return whether a request of this tenant counts."""
        return not self.settings.tenants or tenant in self.settings.tenants

    def expected(self, state: AllowanceState) -> float:
        """Return what a request is expected to cost: the mean so far."""
        return state.mean_cost or self.cost

    def begin(self, now: float) -> AllowanceState:
        """Return the state before the first request."""
        return AllowanceState(float(self.settings.tokens_per_minute or 0), now)

    def wait_s(self, state: AllowanceState, tokens: float, cost: float, now: float, wall: float) -> float:
        """Return the seconds until there is room for a request: 0 now; infinite for one larger than all that is allowed."""
        settings, state = self.settings, self._at(state, now, wall)
        waits = [0.0]
        if settings.tokens_per_minute is not None:
            limit = float(settings.tokens_per_minute)
            lacks = tokens - (state.level - state.held_tokens)
            waits.append(inf if tokens > limit else max(0.0, lacks) * MINUTE_S / limit)
        midnight = DAY_S - wall % DAY_S
        for allowed, used, held, wanted in (
            (settings.tokens_per_day, state.tokens, state.held_tokens, tokens),
            (settings.cost_per_day, state.cost, state.held_cost, cost),
        ):
            if allowed is not None and used + held + wanted > allowed:
                waits.append(_SOON_S if used + wanted <= allowed else midnight)
        if settings.tokens_per_day is not None and tokens > settings.tokens_per_day:
            return inf
        return max(waits)

    def held(self, state: AllowanceState, tokens: float, cost: float, now: float, wall: float) -> AllowanceState:
        """Return the state with a request's estimate held ready."""
        state = self._at(state, now, wall)
        return structs.replace(state, held_tokens=state.held_tokens + tokens, held_cost=state.held_cost + cost)

    def settled(
        self, state: AllowanceState, held: tuple[float, float], used: tuple[float, float], answer: float | None, now: float,
        wall: float,
    ) -> AllowanceState:  # fmt: skip
        """Return the state after a request that held and used (tokens, cost); `answer` has so many tokens, if it had one."""
        state = self._at(state, now, wall)
        return structs.replace(
            state,
            level=state.level - used[0],
            tokens=state.tokens + used[0],
            cost=state.cost + used[1],
            held_tokens=max(0.0, state.held_tokens - held[0]),  # rounding must not leave a little behind for good
            held_cost=max(0.0, state.held_cost - held[1]),
            answer=state.answer if answer is None else _mean(state.answer, answer),
            mean_cost=state.mean_cost if answer is None else _mean(state.mean_cost, used[1]),
        )

    def shares(self, state: AllowanceState, now: float, wall: float) -> dict[str, float]:
        """Return the share of each limit that is used, 0 or more."""
        settings, state = self.settings, self._at(state, now, wall)
        found = {}
        if settings.tokens_per_minute is not None:
            found["tokens_per_minute"] = 1.0 - state.level / settings.tokens_per_minute
        if settings.tokens_per_day is not None:
            found["tokens_per_day"] = state.tokens / settings.tokens_per_day
        if settings.cost_per_day is not None:
            found["cost_per_day"] = state.cost / settings.cost_per_day
        return found

    def _at(self, state: AllowanceState, now: float, wall: float) -> AllowanceState:
        """Return the state as time has made it. A wall clock that goes back gives no day twice."""
        limit = float(self.settings.tokens_per_minute or 0)
        level = min(limit, state.level + max(0.0, now - state.at) * limit / MINUTE_S)
        day = int(wall // DAY_S)
        if day > state.day:
            return structs.replace(state, level=level, at=now, day=day, tokens=0.0, cost=0.0)
        return structs.replace(state, level=level, at=now)


class Allowances:
    """Keeps where limits stand, for at most `limit` (1 or more) budgets and tenants; the least recently used begin anew.
    `exceeded` counts, by budget, the requests that found no room."""

    def __init__(self, limit: int = 10_000) -> None:
        if limit < 1:
            raise ValueError(f"`limit` must be 1 or more, got {limit}")
        self.limit = limit
        self.exceeded: dict[str, int] = {}
        self._states: OrderedDict[str, AllowanceState] = OrderedDict()

    def state(self, allowance: Allowance, tenant: str | None, now: float) -> AllowanceState:
        """Return where a limit stands for a tenant."""
        return self._states.get(_key(allowance, tenant)) or allowance.begin(now)

    def put(self, allowance: Allowance, tenant: str | None, state: AllowanceState) -> None:
        """Keep where it stands now."""
        key = _key(allowance, tenant)
        self._states[key] = state
        self._states.move_to_end(key)
        while len(self._states) > self.limit:
            self._states.popitem(last=False)

    def of(self, allowance: Allowance) -> Iterator[AllowanceState]:
        """Yield every state that is kept of one budget."""
        start = f"{allowance.name}/"
        yield from [state for key, state in self._states.items() if key.startswith(start)]


def _mean(before: float, last: float) -> float:
    return last if before == 0.0 else before + _PACE * (last - before)


def _key(allowance: Allowance, tenant: str | None) -> str:
    return f"{allowance.name}/{short_key(tenant or '') if allowance.per_tenant else ''}"
