"""Advice from an outcomes table: decided on dev, proven on test, each question asked of the test rows once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import Struct, structs

from rheostat.lab.advise.claims import Claim, chains, choose, claims_of
from rheostat.lab.advise.traps import BLOCKING, traps
from rheostat.lab.advise.words import headline, reason
from rheostat.lab.bootstrap import paired_bootstrap
from rheostat.lab.goal import Goal
from rheostat.lab.outcomes import OutcomesTable
from rheostat.lab.replay import replay
from rheostat.lab.trust import Flag, trust
from rheostat.lab.tune import by_cost
from rheostat.policies import Cascade

ALPHA: Final = 0.05
"""One-sided chance of a false claim, shared evenly among the claims that are made."""
MOST_DEV: Final = 20_000
"""So many dev rows are chosen on; test rows count all."""


class Settings(Struct, frozen=True, kw_only=True):
    """What to keep to. `max_share` is the share of calls of the last model that `gain` may use, in [0, 1]; `margin` the
    accuracy, in [0, 1], that counts as equal when something is saved."""

    max_share: float = 0.2
    margin: float = 0.01

    def __post_init__(self) -> None:
        for name in ("max_share", "margin"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"`{name}` must lie in [0, 1], got {getattr(self, name)} (write 0.2 for 20 %)")


class Advice(Struct, frozen=True, kw_only=True):
    """What to do with a pool.

    `use` is the kind of policy, the name of the single model to use, or empty when nothing can be said. `escalate` and
    `blend` answer apart whether asking a dearer model now and then, and whether mixing answers, pays. `levels` is the
    number of models that take part (1: no routing). `single` is the one model to use otherwise, chosen on dev. `sure` is
    1 - p of the claim that is followed; `claims` holds all that were tried, `flags` the traps.
    """

    use: str
    single: str
    escalate: bool
    blend: bool
    levels: int
    sure: float
    headline: str
    reasons: tuple[str, ...]
    claims: tuple[Claim, ...]
    flags: tuple[Flag, ...]
    followed: Claim | None = None

    @property
    def routes(self) -> bool:
        """True when a policy of more than one model is advised."""
        return self.followed is not None


def advise(table: OutcomesTable, *, models: Sequence[str] | None = None, settings: Settings | None = None) -> Advice:
    """Say whether to route, with which policy and how many levels, what that brings, and how sure it is.

    At most four claims are settled on dev and each is tested once on test: the best policy within the budget beats every
    single model (gain), or goes most of the way for half the cost (trade); the cheapest policy as good as the best single
    model is as good, for less (save); a fixed blend beats every single model (blend). A claim is proven when its one-sided
    bootstrap p is at most 5 % divided by the number of claims (Bonferroni).

    Args:
        models: cheapest first; by default all of the table by cost.

    Raises:
        ValueError: fewer than two models, or settings out of range.
    """
    names = tuple(models) if models is not None else by_cost(table)
    if len(names) < 2:
        raise ValueError(f"advice needs at least two models to choose from, got {', '.join(names) or 'none'}")
    wanted = settings or Settings()
    flags = traps(table, names)
    if any(flag.kind in BLOCKING for flag in flags):
        return _nothing(flags)
    flags += trust(table, names).flags
    dev, test = _thinned(table.select(split="dev")), table.select(split="test")
    single = best_single(dev, names)
    useful = undominated(dev, names)
    flags += [
        Flag("dominated", name, "clearly worse on dev than a cheaper model; it can only help where the two err differently")
        for name in names
        if name not in useful
    ]
    claims = _proven(_claims(dev, test, names, single, wanted))
    return _put(claims, single, table, flags)


def _thinned(dev: OutcomesTable) -> OutcomesTable:
    """At most MOST_DEV rows, evenly spread: more choose no better and only take longer."""
    if len(dev) <= MOST_DEV:
        return dev
    return dev.subset(np.unique(np.linspace(0, len(dev) - 1, MOST_DEV).astype(np.int64)))


def best_single(dev: OutcomesTable, names: Sequence[str]) -> str:
    """Return the one model to use: the cheapest, or a dearer one that is better by a paired 95 % interval."""
    rows = dev.complete(names)
    right = {name: dev.correct(name)[rows].astype(np.float64) for name in names}
    best = names[0]
    for name in names[1:]:
        if paired_bootstrap(right[name], right[best]).better:
            best = name
    return best


def undominated(dev: OutcomesTable, names: Sequence[str]) -> tuple[str, ...]:
    """Return the models that are not clearly worse, by a paired 95 % interval, than a cheaper one."""
    rows = dev.complete(names)
    right = {name: dev.correct(name)[rows].astype(np.float64) for name in names}
    return tuple(
        name
        for at, name in enumerate(names)
        if not any(paired_bootstrap(right[name], right[cheaper]).worse for cheaper in names[:at])
    )


def _claims(dev: OutcomesTable, test: OutcomesTable, names: tuple[str, ...], single: str, wanted: Settings) -> list[Claim]:
    decides = tuple(name for name in names if len(np.unique(_confidence(dev, name))) > 1)
    found: list[Claim] = []
    if not decides:
        return found
    gain = choose(dev, _sets(names, decides, names[-1]), Goal(max_share=wanted.max_share))
    if gain is not None:
        found += claims_of(("gain", "trade"), gain, test, names, single, wanted.margin)
    if single != names[0]:
        lowest = float(dev.correct(single)[dev.complete(names)].mean()) or 1.0
        goal = Goal(min_relative_quality=1.0 - wanted.margin / lowest)
        save = choose(dev, _sets(names, decides, single), goal)
        if save is not None:
            found += claims_of(("save",), save, test, names, single, wanted.margin)
    mixed = choose(dev, [names[-3:]], Goal(), ("blend",)) if len(decides) > 1 else None
    if mixed is not None:
        found += claims_of(("blend",), mixed, test, names, single, wanted.margin)
    return found


def _sets(names: tuple[str, ...], decides: tuple[str, ...], last: str) -> list[tuple[str, ...]]:
    """Chains whose every model but the last has a confidence that can pass a request on."""
    return [chain for chain in chains(names, last) if all(name in decides for name in chain[:-1])]


def _confidence(dev: OutcomesTable, name: str) -> np.ndarray:
    values = dev.model(name).confidence[dev.answered(name)]
    return values[np.isfinite(values)]


def _proven(claims: list[Claim]) -> tuple[Claim, ...]:
    limit = ALPHA / max(len(claims), 1)
    return tuple(structs.replace(each, proven=each.p <= limit) for each in claims)


def _put(claims: tuple[Claim, ...], single: str, table: OutcomesTable, flags: Sequence[Flag]) -> Advice:
    dev, test = _thinned(table.select(split="dev")), table.select(split="test")
    proven = {each.kind: each for each in claims if each.proven}
    # A trade or a saving with the same policy as a proven gain says nothing new: the first of these is followed.
    escalation = next((proven[kind] for kind in ("gain", "save", "trade") if kind in proven), None)
    blend = proven.get("blend")
    followed = blend if blend is not None and (escalation is None or _clearly(blend, escalation, dev)) else escalation
    return Advice(
        use=single if followed is None else followed.tuned.kind,
        single=single,
        escalate=escalation is not None,
        blend=blend is not None,
        levels=1 if followed is None else _levels(followed),
        sure=1.0 - followed.p if followed is not None else 1.0 - min((each.p for each in claims), default=0.0),
        headline=headline(followed, single, test),
        reasons=tuple(reason(each, ALPHA / len(claims)) for each in claims),
        claims=claims,
        flags=tuple(flags),
        followed=followed,
    )


def _clearly(blend: Claim, other: Claim, dev: OutcomesTable) -> bool:
    """Whether a blend, which always asks everyone, is better on dev than the escalation by a paired 95 % interval."""
    rows = np.flatnonzero(dev.complete(tuple(dict.fromkeys([*blend.tuned.stages, *other.tuned.stages]))))
    part = dev.subset(rows)
    left, right = (replay(each.tuned.policy, part).correct.astype(np.float64) for each in (blend, other))
    return paired_bootstrap(left, right).better


def _levels(followed: Claim) -> int:
    policy = followed.tuned.policy
    return len(policy.stages) if isinstance(policy, Cascade) else followed.levels


def _nothing(flags: Sequence[Flag]) -> Advice:
    why = next(flag for flag in flags if flag.kind in BLOCKING)
    return Advice(
        use="", single="", escalate=False, blend=False, levels=1, sure=0.0, claims=(), flags=tuple(flags), reasons=(),
        headline=f"No advice can be given: {why.about}: {why.text}.",
    )  # fmt: skip
