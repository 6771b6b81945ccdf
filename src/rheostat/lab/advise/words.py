"""Advice in sentences."""

from __future__ import annotations

from typing import Final

from rheostat.lab.advise.claims import Claim
from rheostat.lab.outcomes import OutcomesTable

_SAYS: Final = {
    "gain": "within the budget of calls, routing beats every single model",
    "trade": "routing goes most of the way to the last model for at most half of its cost",
    "save": "routing is as good as {against} for less",
    "blend": "a fixed blend beats every single model",
}


def headline(followed: Claim | None, single: str, test: OutcomesTable) -> str:
    """Return the advice as one sentence."""
    if followed is None:
        rows = test.answered(single) & test.known
        accuracy = float(test.correct(single)[rows].mean()) if rows.any() else float("nan")
        return f"Don't route: use {single} alone ({accuracy:.2%} on test); nothing better is proven."
    found = followed.tuned.reported
    what = f"{followed.tuned.kind} over {', '.join(followed.tuned.stages)}"
    point = f"{found.quality.mean:.2%} at {found.share.mean:.1%} calls of {found.last}"
    against = f"{_points(followed)} against {followed.against} alone, {_saved(followed)}"
    if followed.against != found.last:
        saving = 1.0 - found.cost.mean / max(found.single(found.last).cost, 1e-300)
        price = f", {saving:.0%} cheaper" if saving > 0.0 else ""
        against += f"; {found.vs_last.mean * 100:+.2f} points against {found.last} alone{price}"
    return f"Route ({what}): {point}; {against}."


def reason(each: Claim, limit: float) -> str:
    """Return one claim with its figures on fresh rows and whether they prove it."""
    says = _SAYS[each.kind].format(against=each.against)
    word = "proven" if each.proven else "not proven"
    return f"{word} (p = {each.p:.4f}, limit {limit:.4f}): {says}. {each.tuned.kind}: {_points(each)}, {_saved(each)}"


def _points(each: Claim) -> str:
    gap = each.quality
    return f"{gap.mean * 100:+.2f} points [{gap.low * 100:+.2f}, {gap.high * 100:+.2f}]"


def _saved(each: Claim) -> str:
    gap = each.saving
    if gap.mean >= 0.0:
        return f"{gap.mean:.0%} cheaper [{gap.low:.0%}, {gap.high:.0%}]"
    return f"at {1.0 - gap.mean:.3g} times its cost"
