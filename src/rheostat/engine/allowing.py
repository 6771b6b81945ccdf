"""Budgets with limits, on a request's way: who has no room is told so, who has is held to what was really used."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import inf
from typing import Any

import msgspec
from msgspec import Struct, structs

from rheostat.clock import Clock
from rheostat.errors import TooLarge, TooMany
from rheostat.resilience.allowance import Allowance, Allowances
from rheostat.types import Chat, Outcome, Prediction, Request, RouteRecord, tokens_of

_UNTOLD = frozenset(("cancelled", "timeout", "deadline", "reset", "uncertain"))
"""Failures after which the model may have read the input, and begun to write, without saying how much."""


class _Stake(Struct, frozen=True):
    """What a request in flight holds, of which budgets."""

    allowances: tuple[Allowance, ...]
    input: float
    answer: float
    cost: float

    @property
    def held(self) -> tuple[float, float]:
        return self.input + self.answer, self.cost


class Allowing:
    """Holds what a request is expected to take, and settles it when it has ended."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.kept = Allowances()
        self._stakes: dict[int, _Stake] = {}

    def bounded(self, allowances: Collection[Allowance], request: Request) -> Request:
        """Return the request with what it may still cost, where a budget is used up that lets it go on more cheaply."""
        now, wall = self.clock.monotonic(), self.clock.wall()
        most = request.max_cost
        for allowance in allowances:
            cheap = allowance.settings.max_cost
            if cheap is None or cheap >= most or not allowance.holds_for(request.tenant):
                continue
            state = self.kept.state(allowance, request.tenant, now)
            size = _input_of(request) + _answer_of(request, state.answer)
            if allowance.wait_s(state, size, allowance.expected(state), now, wall) > 0.0:
                self._exceeded(allowance)
                most = cheap
        return request if most == request.max_cost else structs.replace(request, max_cost=most)

    def enter(self, allowances: Collection[Allowance], request: Request) -> None:
        """Hold ready what the request is expected to take, until it is `settled`.

        Raises:
            TooMany: a budget has no room for it now; it says when.
            TooLarge: it is larger than all that a budget allows at a time.
        """
        now, wall = self.clock.monotonic(), self.clock.wall()
        mine = tuple(each for each in allowances if each.holds_for(request.tenant))
        states = [self.kept.state(each, request.tenant, now) for each in mine]
        size = _input_of(request)
        answer = max((_answer_of(request, state.answer) for state in states), default=0.0)
        cost = max((each.expected(state) for each, state in zip(mine, states, strict=True)), default=0.0)
        for allowance, state in zip(mine, states, strict=True):
            if allowance.settings.max_cost is not None:
                continue
            wait = allowance.wait_s(state, size + answer, cost, now, wall)
            if wait <= 0.0:
                continue
            self._exceeded(allowance)
            if wait == inf:
                told = f"the request needs about {size + answer:.0f} tokens, more than the budget `{allowance.name}` allows"
                raise TooLarge(told)
            raise TooMany(f"the budget `{allowance.name}` is used up", wait)
        stake = _Stake(mine, size, answer, cost)
        for allowance, state in zip(mine, states, strict=True):
            self.kept.put(allowance, request.tenant, allowance.held(state, *stake.held, now, wall))
        self._stakes[id(request)] = stake

    def settled(self, record: RouteRecord, request: Request, history: Sequence[Outcome]) -> RouteRecord:
        """Count what the request's calls took, in place of what was held; returns the record with its tokens."""
        stake = self._stakes.pop(id(request), None)
        if stake is None:
            return record
        tokens, answer = used_tokens(history, stake.input, stake.answer)
        now, wall = self.clock.monotonic(), self.clock.wall()
        for allowance in stake.allowances:
            state = self.kept.state(allowance, request.tenant, now)
            after = allowance.settled(state, stake.held, (tokens, record.cost), answer, now, wall)
            self.kept.put(allowance, request.tenant, after)
        return structs.replace(record, tokens=round(tokens))

    def seed(self, allowances: Collection[Allowance], route: str, tenant: str | None, tokens: float, cost: float) -> None:
        """Count what was used today before this process began."""
        now, wall = self.clock.monotonic(), self.clock.wall()
        for allowance in allowances:
            if allowance.holds_for(tenant) and (not allowance.settings.routes or route in allowance.settings.routes):
                state = allowance.held(self.kept.state(allowance, tenant, now), 0.0, 0.0, now, wall)
                self.kept.put(
                    allowance, tenant, structs.replace(state, tokens=state.tokens + tokens, cost=state.cost + cost)
                )

    def _exceeded(self, allowance: Allowance) -> None:
        exceeded = self.kept.exceeded
        exceeded[allowance.name] = exceeded.get(allowance.name, 0) + 1


def used_tokens(history: Sequence[Outcome], size: float, answer: float) -> tuple[float, float | None]:
    """Return the tokens that all calls took, and those of the longest answer (None: there was none).

    They are what the models told of their usage; where one told nothing, an estimate. A call that was cut off counts the
    input (`size`) and what it had sent, or the `answer` that was expected; one that was refused counts nothing.
    """
    total, longest = 0.0, None
    for outcome in history:
        for attempt in outcome.attempts:
            if attempt.failure is not None and attempt.failure.kind in _UNTOLD:
                total += size + (attempt.pieces or answer)
        said = outcome.prediction
        if said is not None and outcome.attempts:  # without a try of its own it was counted with another model
            known = usage_of(said)
            read, written = known if known is not None else (size, float(tokens_of(said.label)))
            total += read + written
            longest = written if longest is None else max(longest, written)
    return total, longest


class _Usage(Struct):
    prompt_tokens: float
    completion_tokens: float = 0.0


class _Completion(Struct):
    usage: _Usage | None = None


_decode = msgspec.json.Decoder(_Completion).decode


def usage_of(said: Prediction) -> tuple[float, float] | None:
    """Return the tokens that a model says it has read and written for an answer; None where it does not tell."""
    output: Any = said.output
    try:
        if isinstance(output, bytes):
            usage = _decode(output).usage
            found = None if usage is None else (usage.prompt_tokens, usage.completion_tokens)
        elif isinstance(output, Mapping):  # a GGUF model's own count
            found = (float(output["prompt_tokens"]), float(output["tokens"]))
        else:
            found = None
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError):
        return None
    return found if found is not None and found[0] >= 0.0 and found[1] >= 0.0 else None


def _input_of(request: Request) -> float:
    return float(tokens_of(request.data))


def _answer_of(request: Request, mean: float) -> float:
    """Return the tokens that an answer is expected to have: what it is limited to, else the mean so far."""
    data = request.data
    if isinstance(data, Chat):
        for name in ("max_completion_tokens", "max_tokens"):
            asked = data.asks(name)
            if isinstance(asked, int | float) and asked > 0:
                return float(asked)
    return mean
