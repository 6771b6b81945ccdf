"""The difficulty study's figures as lines of Markdown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from rheostat.lab.difficulty import Examples, Flips, Setting, agreement, tier_errors
from rheostat.lab.difficulty.net import auroc
from rheostat.lab.difficulty.tiers import agreement_cut

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_DRAWS: Final = 500
_SHOWN: Final = 8


@dataclass(frozen=True)
class Study:
    """What was measured on one set; `scores` are of its test rows, times are microseconds a text."""

    name: str
    test: Examples
    dev: Examples
    scores: dict[str, Floats]
    dev_score: Floats
    best: str
    setting: Setting
    cuts: tuple[float, ...]
    plain: Flips
    steady: Flips
    steady_auroc: float
    micro: float
    encoder: float


def heads() -> list[str]:
    """Return the head of the table of AUROCs."""
    names = (
        "set", "test (errors)", "length", "best baseline", "net", "net - best baseline", "counts",
        "+ structure and vocabulary", "+ words", "no labels", "confidence (after the call)", "cost of MiniLM's",
    )  # fmt: skip
    return [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]


def row(found: Study) -> str:
    """Return one set's line."""
    error, scores = found.test.error, found.scores
    value = {name: auroc(error, score) for name, score in scores.items()}
    cells = (
        found.name,
        f"{len(error)} ({error.mean():.1%})",
        f"{value['length']:.3f}",
        f"{found.best} {value[found.best]:.3f}",
        f"**{value['net']:.3f}**",
        _gap(error, scores["net"], scores[found.best]),
        f"{value['only counts']:.3f}",
        f"{value['all features']:.3f} ({_gap(error, scores['all features'], scores['only counts'])})",
        f"{value['with words']:.3f} ({_gap(error, scores['with words'], scores['all features'])})",
        f"{value['no labels']:.3f}",
        f"{value['confidence']:.3f}",
        f"{found.micro:.0f} / {found.encoder:.0f} µs = {found.micro / found.encoder:.1%}",
    )
    return f"| {' | '.join(cells)} |"


def agreement_line(found: Study) -> str:
    """Return the agreement of two tiers with outcomes, and the errors of three."""
    cut = agreement_cut(found.dev_score, found.dev.error)
    two = agreement(found.scores["net"], found.test.error, cut)
    three = tier_errors(found.scores["net"], found.test.error, found.cuts)
    said = ", ".join("none" if each is None else f"{each.mean:.1%} of {each.n}" for each in three)
    return (
        f"- {found.name}: {two.share.mean:.1%} [{two.share.low:.1%}, {two.share.high:.1%}], always the commoner tier "
        f"{two.constant:.1%}, kappa {two.kappa:.2f}; errors by tier {said}"
    )


def robust_line(found: Study) -> str:
    """Return how often one character changes the tier."""
    return (
        f"- {found.name}: {found.plain.single:.1%} of edits, worst of ten {found.plain.worst:.1%}; with hysteresis "
        f"{found.plain.margin:.3f} {found.plain.held_single:.1%} and {found.plain.held_worst:.1%}; trained on edits too, "
        f"without it {found.steady.single:.1%} and {found.steady.worst:.1%} (AUROC {found.steady_auroc:.3f})"
    )


def chinese_lines(found: Study) -> list[str]:
    """Return the features that go most with errors, and how."""
    from scipy.stats import spearmanr

    rows = []
    sure = -found.scores["confidence"]
    for name in found.test.features:
        column = found.test.x[:, found.test.features.index(name)]
        if name.startswith("bag") or column.min() == column.max():
            continue
        with_error, with_sure = spearmanr(column, found.test.error), spearmanr(column, sure)
        rows.append((float(with_error.statistic), float(with_error.pvalue), float(with_sure.statistic), name))
    rows.sort(key=lambda each: -abs(each[0]))
    return [
        "| feature | with error | p | with confidence |",
        "|---|---|---|---|",
        *(f"| {name} | {a:+.3f} | {p:.1g} | {b:+.3f} |" for a, p, b, name in rows[:_SHOWN]),
    ]


def _gap(error: Floats, left: Floats, right: Floats) -> str:
    """AUROC of `left` minus that of `right` with a 95 % interval, rows resampled together."""
    rng = np.random.default_rng(0)
    draws: list[float] = []
    while len(draws) < _DRAWS:
        picked = rng.integers(0, len(error), len(error))
        if 0.0 < error[picked].mean() < 1.0:
            draws.append(auroc(error[picked], left[picked]) - auroc(error[picked], right[picked]))
    low, high = np.quantile(draws, [0.025, 0.975])
    return f"{auroc(error, left) - auroc(error, right):+.3f} [{low:+.3f}, {high:+.3f}]"
