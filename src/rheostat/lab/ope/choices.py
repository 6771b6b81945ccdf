"""What a policy would choose, as chances over actions; an action is the models of its first call, joined by `+`."""

from __future__ import annotations

from typing import Any, Final

from msgspec import structs

from rheostat.lab.ope.log import SURE, OpeRefused
from rheostat.policies import Policy, Split, walk
from rheostat.types import Call, Context, Decision, Outcome, Prediction, Request, RouteRecord

_DRAWS: Final = 500


def context_of(record: RouteRecord) -> Context:
    """Return the context a record was decided in, as far as it was kept (the input's text only where the route keeps it)."""
    text = record.input.text if record.input is not None and record.input.text is not None else ""
    request = Request(
        id=record.id,
        data=text or None,
        text=text,
        meta=record.meta,
        route=record.route,
        session=record.session,
        tenant=record.tenant,
    )
    return Context(request, record.signals, {}, record.held)


def drawn_by(policy: Policy) -> tuple[str, ...]:
    """Return the keys by which the policy draws: session, tenant, request, or fields of meta."""
    drawn = [part for part in walk(policy) if isinstance(part, Split) or getattr(part, "mode", "") == "sample"]
    return tuple(sorted({part.key for part in drawn}))


def choices(policy: Policy, ctx: Context, keys: tuple[str, ...]) -> dict[str, float]:
    """Return action -> chance. Where chance takes part, the request is drawn again under other keys until all is seen.

    Each draw tells its own chance: the result is exact, but for what 500 draws do not meet. `keys` are those of `drawn_by`.

    Raises:
        OpeRefused: the policy does not begin with a call.
    """
    first = policy.decide(ctx, ())
    if not isinstance(first, Call):
        raise OpeRefused(f"the policy does not choose here: {first.reason}")
    if first.propensity >= SURE:
        return {action_of(first.models): 1.0}
    seen = {(action_of(first.models), first.reason): first.propensity}
    for draw in range(_DRAWS):
        if sum(seen.values()) >= SURE:
            break
        again: Decision = policy.decide(_redrawn(ctx, keys, draw), ())
        if isinstance(again, Call):
            seen.setdefault((action_of(again.models), again.reason), again.propensity)
    total = sum(seen.values())
    found: dict[str, float] = {}
    for (action, _), share in seen.items():
        found[action] = found.get(action, 0.0) + share / total
    return found


def action_of(models: tuple[str, ...]) -> str:
    """Return the name of a call as an action."""
    return "+".join(models)


def check_settles(policy: Policy, ctx: Context) -> None:
    """Refuse a policy that may call further models after an answer: what would have come of them is not in the log.

    Raises:
        OpeRefused: it does.
    """
    first = policy.decide(ctx, ())
    if isinstance(first, Call):
        unsure = tuple(Outcome(model, Prediction("", 0.0), served_by=model) for model in first.models)
        then = policy.decide(ctx, unsure)
        if isinstance(then, Call) and set(then.models) - set(first.models):
            raise OpeRefused(
                "the policy decides again after an answer (a cascade, say); records of one choice a request cannot judge "
                "that: replay it over an outcomes table (`rheostat replay`)"
            )


def _redrawn(ctx: Context, keys: tuple[str, ...], draw: int) -> Context:
    request = ctx.request
    changed: dict[str, Any] = {"id": f"{request.id}#{draw}"}
    meta = dict(request.meta)
    for key in keys:
        if key in ("session", "tenant"):
            changed[key] = f"{getattr(request, key)}#{draw}"
        elif key != "request":
            meta[key] = f"{meta.get(key)}#{draw}"
    return structs.replace(ctx, request=structs.replace(request, meta=meta, **changed), memo={})
