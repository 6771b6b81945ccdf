"""Does routing pay on this data? The answer in words, with the numbers it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from rheostat.lab.bootstrap import Difference
from rheostat.lab.figures import Figures
from rheostat.lab.goal import Goal, GoalError
from rheostat.lab.outcomes import OutcomesTable
from rheostat.lab.trust import Trust, trust
from rheostat.lab.tune import Tuned, by_cost, tune

WORTH: Final = 0.05
"""Relative saving below which a cheaper policy is not called cheaper."""
MOST: Final = 0.5
"""The part of the gap between the first and the last model that must be closed to speak of most of the way."""
BARGAIN: Final = 0.5
"""A policy that is clearly worse than the last model must cost at most this share of it."""


class Verdict(Struct, frozen=True, kw_only=True):
    """What to do. `use` is `cascade`, `cascade+blend`, `blend`, `delegate` or the name of one model.

    `pays` is True when a routed policy beats what a single model gives; `headline` says it in a sentence, `reasons` why.
    `blending` says what mixing the answers adds, `trust` what makes all of it doubtful.
    """

    pays: bool
    use: str
    headline: str
    reasons: tuple[str, ...]
    blending: str
    trust: Trust
    tuned: tuple[Tuned, ...]

    @property
    def caution(self) -> tuple[str, ...]:
        """What to know before believing any of it."""
        return tuple(f"{flag.about}: {flag.text}" for flag in self.trust.flags)


def verdict(
    table: OutcomesTable, *, stages: Sequence[str] | None = None, goal: Goal | None = None, seed: int = 0
) -> Verdict:
    """Tune a cascade and its blending relatives on dev, measure them on test, and say whether any of it pays.

    A routed policy pays when, on fresh rows, it is better than the first model by a paired 95 % interval, better than
    sending the same share of requests blindly, and either better than the last model, or not clearly worse at a lower
    cost, or clearly worse at half the cost or less. A blend helps when it is better than the best single model by a
    paired 95 % interval.

    Args:
        stages: cheapest first; by default all models by cost.
        goal: by default at most 20 % calls of the last model.

    Raises:
        GoalError, ValueError: as `tune`.
    """
    names = tuple(stages) if stages is not None else by_cost(table)
    wanted = goal or Goal(max_share=0.2)
    routed = [tune(table, wanted, stages=names, seed=seed)]
    for kind in ("cascade+blend", "delegate"):
        if kind != "delegate" or len(names) == 2:
            try:
                routed.append(tune(table, wanted, stages=names, kind=kind, seed=seed))
            except GoalError:
                continue  # the cascade keeps the goal, this kind cannot: there is nothing to compare
    mixed = tune(table, Goal(), stages=names, kind="blend", seed=seed)
    paying = [one for one in routed if pays(one.reported)]
    best = _best(paying) if paying else routed[0]
    worth = bool(paying)
    use = best.kind if worth else _single(best.reported)
    return Verdict(
        pays=worth,
        use=use,
        headline=_headline(best, worth, use),
        reasons=tuple(reasons(best.reported)),
        blending=_blending(mixed),
        trust=trust(table, names),
        tuned=(*routed, mixed),
    )


def _best(paying: Sequence[Tuned]) -> Tuned:
    """The best on the rows it was chosen on, so that the fresh rows stay fresh; the simpler one among equals."""
    return max(paying, key=lambda one: (one.chosen.quality.mean, -paying.index(one)))


def pays(found: Figures) -> bool:
    """Return whether a routed policy is worth its trouble on these rows (see `verdict`)."""
    if not found.vs_first.better or not found.vs_random.better:
        return False
    return found.vs_last.better or (not found.vs_last.worse and saves(found)) or _between(found)


def saves(found: Figures) -> bool:
    """Return whether the policy is cheaper than the last model alone by more than a trifle."""
    return found.cost.mean < (1.0 - WORTH) * found.single(found.last).cost


def _between(found: Figures) -> bool:
    """Clearly better than the first model and clearly worse than the last, but far cheaper: a bargain, not a free one."""
    return found.vs_last.worse and found.cost.mean <= BARGAIN * found.single(found.last).cost


def _single(found: Figures) -> str:
    """The one model to use: the best, the cheaper one unless the dearer is better by a paired interval."""
    return found.last if found.last_vs_first.better else found.first


def _percent(gap: Difference) -> str:
    return f"{gap.mean * 100:+.2f} points [{gap.low * 100:+.2f}, {gap.high * 100:+.2f}]"


def _headline(best: Tuned, worth: bool, use: str) -> str:
    found = best.reported
    what = f"{found.quality.mean:.2%} at {found.share.mean:.1%} calls of {found.last}"
    if not worth:
        return f"Escalation does not pay here: use {use} alone ({found.single(use).quality.mean:.2%} on {found.split})."
    if found.vs_last.better and found.vs_first.better:
        return f"Routing beats every single model: {what}."
    if found.vs_last.worse:
        low, high = found.single(found.first).quality.mean, found.single(found.last).quality.mean
        closed = f"{(found.quality.mean - low) * 100:.1f} of the {(high - low) * 100:.1f} points"
        most = "most of the way" if found.quality.mean - low >= MOST * (high - low) else "part of the way"
        return f"Routing goes {most} to {found.last} for less: {what}, {closed} between {found.first} and {found.last}."
    saving = 1.0 - found.cost.mean / found.single(found.last).cost
    return f"Routing gives what {found.last} gives, {saving:.0%} cheaper: {what}."


def reasons(found: Figures) -> list[str]:
    """Return the comparisons behind a verdict, one sentence each."""
    first, last = found.single(found.first), found.single(found.last)
    gap = found.last_vs_first
    told = []
    if gap.worse or gap.mean <= 0.0:
        told.append(
            f"{found.last} is not better than {found.first} on {found.split}: {last.quality.mean:.2%} against "
            f"{first.quality.mean:.2%}, {_percent(gap)}; don't escalate for accuracy"
        )
    else:
        told.append(f"{found.last} against {found.first}: {_percent(gap)}")
    told.append(f"routed against {found.first} alone: {_percent(found.vs_first)}{_unsure(found.vs_first)}")
    told.append(f"routed against {found.last} alone: {_percent(found.vs_last)}{_unsure(found.vs_last)}")
    told.append(f"routed against the same share sent blindly: {_percent(found.vs_random)}{_unsure(found.vs_random)}")
    if saves(found):
        told.append(f"cost {found.cost.mean:.4g} against {last.cost:.4g} for {found.last} alone")
    else:
        told.append(f"no saving: it costs {found.cost.mean:.4g} against {last.cost:.4g} for {found.last} alone")
    return told


def _unsure(gap: Difference) -> str:
    return "" if gap.better or gap.worse else " (the interval holds 0: no difference shown)"


def _blending(mixed: Tuned) -> str:
    """What a fixed blend, its weights chosen on dev, adds on fresh rows."""
    found = mixed.reported
    best = max(found.alone, key=lambda one: one.quality.mean)
    against = next(gap for model, gap in found.vs_each if model == best.model)
    weights = getattr(mixed.policy, "weights", None)
    if weights is None:
        only = getattr(mixed.policy, "model", "one model")
        return f"Blending does not help: the best weights on {mixed.chosen.split} are all on {only}."
    shown = ", ".join(f"{name} {weight / sum(weights.values()):.2f}" for name, weight in weights.items())
    if against.better:
        return f"Blending helps: {found.quality.mean:.2%} with {shown}, against {best.model} alone {_percent(against)}."
    return (
        f"Blending shows no gain: {found.quality.mean:.2%} with {shown}, against {best.model} alone {_percent(against)}; "
        "the models know the same things, or the set is too small to tell."
    )
