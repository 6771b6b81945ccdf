"""Who is passed over, although a decision names it: not asked, and so neither failed nor paid."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from rheostat.resilience.ladder import Link
from rheostat.resilience.ramp import among
from rheostat.types import Context, Failure, tokens_of

TOKENS = "tokens"
"""Where a context's memo keeps the size of the input."""


def too_large(link: Link, ctx: Context) -> Failure | None:
    """Say that the input is larger than the model can take."""
    if not link.max_input:
        return None
    size = ctx.memo.get(TOKENS)
    if size is None:
        size = ctx.memo[TOKENS] = tokens_of(ctx.request.data)
    if size <= link.max_input:
        return None
    return Failure("input_too_large", f"passed over: about {size} tokens, it takes {link.max_input}")


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
        if too_large(link, ctx) is None:
            return Failure("ramping", f"passed over: it has just come back and may have {view.ramp:.0%} of its traffic")
    return None


def unpaid(model: str, links: Mapping[str, Link], max_cost: float, spent: float) -> Failure | None:
    """Say that the request cannot pay for the call: `spent` of its `max_cost` is gone."""
    cost = links[model].cost
    if max_cost == inf or spent + cost <= max_cost:
        return None
    return Failure("over_budget", f"its cost of {cost:g} is more than is left of {max_cost:g}")
