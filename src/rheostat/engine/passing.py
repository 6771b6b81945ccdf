"""Who is passed over, although a decision names it: not asked, and so neither failed nor paid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from rheostat.resilience.ladder import Link
from rheostat.resilience.ramp import among
from rheostat.types import Chat, Context, Failure, Outcome, tokens_of
from rheostat.types.ability import needs_of
from rheostat.types.talk import Talk

TOKENS, NEEDS = "tokens", "needs"
"""Where a context's memo keeps the size of the input, and what it asks of a model."""


def unfit(link: Link, ctx: Context) -> Failure | None:
    """Say that the model cannot take the input: it needs what the model cannot do, or is too large for it."""
    if link.kinds is not None and isinstance(asked := ctx.request.data, Chat) and asked.kind not in link.kinds:
        return Failure("unsupported", f"passed over: it serves no {asked.kind}")
    if link.can is not None:
        needs = ctx.memo.get(NEEDS)
        if needs is None:
            needs = ctx.memo[NEEDS] = needs_of(ctx.request.data)
        if lacks := sorted(needs.difference(link.can)):
            return Failure("unsupported", f"passed over: it takes no {' and no '.join(lacks)}")
    if not link.max_input:
        return None
    size = ctx.memo.get(TOKENS)
    if size is None:
        data = ctx.request.data
        size = ctx.memo[TOKENS] = tokens_of(data.least if isinstance(data, Talk) else data)
    if size <= link.max_input:
        return None
    return Failure("input_too_large", f"passed over: about {size} tokens, it takes {link.max_input}")


def outgrown(link: Link, links: Mapping[str, Link], history: Sequence[Outcome]) -> Failure | None:
    """Say that a model which takes more has just refused the input as too large."""
    if not link.max_input:
        return None
    for outcome in history:
        failure = outcome.failure
        if failure is None or failure.kind != "input_too_large" or not outcome.attempts:
            continue
        larger = links.get(outcome.served_by or outcome.model)
        if larger is not None and larger.max_input >= link.max_input:
            told = f"passed over: {outcome.served_by or outcome.model}, which takes {larger.max_input} tokens, refused it"
            return Failure("input_too_large", told)
    return None


def ramping(model: str, ctx: Context, links: Mapping[str, Link], tried: frozenset[str] | set[str]) -> Failure | None:
    """Say that the model has just come back and this request is not among the share it may have yet.

    The share is drawn by session (else by request), so that a growing share moves each session once. A probe of a
    half-open breaker comes before the ramp and may be any request, so it may take one of a session back to its model before
    its time: waiting for the right session would keep a model out that is well. A model is spared only while another one
    of the route could be asked.
    """
    view = ctx.pool.get(model)
    if view is None or view.ramp >= 1.0 or among(view.ramp, model, ctx.request.key("session")):
        return None
    for other, link in links.items():
        seen = ctx.pool.get(other)
        if other == model or other in tried or seen is None or not seen.available or seen.ramp < 1.0:
            continue
        if unfit(link, ctx) is None:
            return Failure("ramping", f"passed over: it has just come back and may have {view.ramp:.0%} of its traffic")
    return None


def unpaid(model: str, links: Mapping[str, Link], max_cost: float, spent: float) -> Failure | None:
    """Say that the request cannot pay for the call: `spent` of its `max_cost` is gone."""
    cost = links[model].cost
    if max_cost == inf or spent + cost <= max_cost:
        return None
    return Failure("over_budget", f"its cost of {cost:g} is more than is left of {max_cost:g}")
