"""Refuses what would make a figure too good: rows, features or labels of the evaluation fold among what is fitted."""

from __future__ import annotations

from typing import Final

import numpy as np

from rheostat.lab.difficulty.examples import Examples
from rheostat.lab.metrics import Floats
from rheostat.signals.learned import LearnedCard

_TELLING: Final = 0.995  # AUROC of one feature alone from which it is taken for the label itself
_FEW: Final = 20  # rows of either kind, below which a feature may tell them apart by chance
_SURE: Final = 3.0  # standard errors


class LeakError(ValueError):
    """What is fitted has seen what it is judged on; the message says what, where, and what to do."""


def check_leaks(fit: Examples, judge: Examples) -> None:
    """Hold the rows to fit on against the rows to judge on.

    Raises:
        LeakError: the same question stands on both sides; a feature is the label in other words; or the errors of one
            side are those of a small model that was trained on these rows (less than half as many as on the other side).
        ValueError: a side is empty, their features differ, or there is only one class to learn from.
    """
    if not len(fit) or not len(judge):
        raise ValueError(f"{len(fit)} rows to fit on and {len(judge)} to judge on; both are needed")
    if fit.features != judge.features:
        raise ValueError("the rows to fit on and those to judge on have other features")
    no_repeats(fit, judge)
    told = fit.error.mean()
    if told in (0.0, 1.0):
        raise ValueError(f"the small model is always {'wrong' if told else 'right'} on the rows to fit on: nothing to learn")
    _no_feature_is_the_label(fit)
    fresh = judge.error.mean()
    spread = np.sqrt(told * (1 - told) / len(fit) + fresh * (1 - fresh) / len(judge))
    for few, many, here in ((told, fresh, "to fit on"), (fresh, told, "to judge on")):
        if few < many / 2 and many - few > _SURE * spread:
            raise LeakError(
                f"the small model errs on {few:.1%} of the rows {here} and on {many:.1%} of the others: it was trained on "
                "them, and its errors there are not those of traffic. Use out-of-fold answers, or rows it has not seen"
            )


def no_repeats(fit: Examples, judge: Examples) -> None:
    """Refuse questions that stand on both sides.

    Raises:
        LeakError: with how many, an example and the remedy.
    """
    shared = np.isin(judge.like, fit.like)
    if shared.any():
        example = judge.texts[int(np.flatnonzero(shared)[0])][:60]
        raise LeakError(
            f"{int(shared.sum())} of the {len(judge)} rows to judge on are repeats of rows to fit on (such as {example!r}); "
            "leave them out with `without_repeats` (--drop-repeats)"
        )


def _no_feature_is_the_label(fit: Examples) -> None:
    from rheostat.lab.difficulty.net import auroc

    if min(fit.error.sum(), (1.0 - fit.error).sum()) < _FEW:
        return
    for name, column in zip(fit.features, fit.x.T, strict=True):
        finite: Floats = np.nan_to_num(column.astype(np.float64))
        value = auroc(fit.error, finite)
        if max(value, 1.0 - value) >= _TELLING:
            raise LeakError(
                f"the feature {name!r} alone tells errors with an AUROC of {max(value, 1.0 - value):.3f}: it is the label, "
                "or made from it. Leave it out"
            )


def without_repeats(fit: Examples, judge: Examples) -> Examples:
    """Return the rows to fit on without those whose question stands among the rows to judge on."""
    return fit.take(~np.isin(fit.like, judge.like))


def check_unseen(card: LearnedCard, data_hash: str, split: str) -> None:
    """Refuse to judge a learned file on the split it was fitted on.

    Raises:
        LeakError: the card names this very set and split.
    """
    if card.data_hash and card.data_hash == data_hash and split in (word.strip() for word in card.fitted_on.split(",")):
        raise LeakError(f"this file was fitted on {card.fitted_on} of this very table; judge it on another split")
