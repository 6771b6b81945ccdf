"""How good a router is on rows it has not seen, with intervals, and whether there is any signal at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
from msgspec import Struct

from rheostat.lab.bootstrap import Difference, Interval, lower_bound
from rheostat.lab.metrics import Floats, apgr, call_performance_curve, cpt
from rheostat.lab.outcomes import Ints
from rheostat.lab.routers.data import RoutingData, folds, must_route
from rheostat.lab.routers.learner import Fitted, Learner
from rheostat.lab.routers.learners import fitted

DRAWS: Final = 1_000
Tell = Callable[[str], None]


class OutOfFold(NamedTuple):
    """A score per row, from a router that saw neither the row nor its duplicates; the folds, and the routers by fold."""

    score: Floats
    fold: Ints
    members: tuple[Fitted, ...]


class Judged(Struct, frozen=True, kw_only=True):
    """A router's figures on held-out rows. `cpt50`, `cpt80` are shares of strong calls in [0, 1], NaN if never reached."""

    apgr: Interval
    cpt50: float
    cpt80: float

    @property
    def signal(self) -> bool:
        """True when the whole interval of the APGR lies above 0.5, what chance reaches."""
        return self.apgr.low > 0.5


def out_of_fold(
    data: RoutingData, learner: Learner, *, count: int = 5, seed: int = 0, part: Ints | None = None, tell: Tell | None = None
) -> OutOfFold:
    """Score every row by a router fitted on the other folds; settings are chosen inside each fold.

    Args:
        part: folds given instead of dealt (a code per row), such as whole groups held out.

    Raises:
        ValueError: data on which nothing can be routed, or fewer distinct prompts than folds.
    """
    must_route(data)
    dealt = folds(data.same, count, seed) if part is None else part
    score, members = np.empty(len(data)), []
    kinds = np.unique(dealt).tolist()
    for place, fold in enumerate(kinds):
        here = dealt == fold
        router, _ = fitted(data.take(~here), learner)
        score[here] = router.predict(data.x[here])
        members.append(router)
        if tell is not None:
            tell(f"{learner.name}: fold {place + 1} of {len(kinds)}")
    return OutOfFold(score, dealt, tuple(members))


def judge(data: RoutingData, scores: Floats | Sequence[Floats], draws: int = DRAWS, seed: int = 0) -> Judged:
    """Return the figures of held-out scores; several rows of scores (split seeds) are averaged in every draw.

    The interval is a percentile bootstrap over prompts. Source: RouteLLM (arXiv 2406.18665) for APGR and CPT.
    """
    each = _rows(scores)
    curves = [call_performance_curve(data.weak, data.strong, one) for one in each]
    found = apgr_draws(data, [each], draws, seed)[:, 0]
    low, high = np.quantile(found, [0.025, 0.975])
    middle = float(np.mean([apgr(curve) for curve in curves]))
    return Judged(
        apgr=Interval(middle, float(low), float(high), len(data)),
        cpt50=float(np.mean([cpt(curve, 0.5) for curve in curves])),
        cpt80=float(np.mean([cpt(curve, 0.8) for curve in curves])),
    )


def against(
    data: RoutingData, ours: Floats | Sequence[Floats], theirs: Floats | Sequence[Floats], draws: int = DRAWS, seed: int = 0
) -> Difference:
    """Return the paired difference of two routers' APGR, both on the same prompts in every draw."""
    left, right = _rows(ours), _rows(theirs)
    found = apgr_draws(data, [left, right], draws, seed)
    gap = found[:, 0] - found[:, 1]
    low, high = np.quantile(gap, [0.025, 0.975])
    means = [np.mean([apgr(call_performance_curve(data.weak, data.strong, one)) for one in each]) for each in (left, right)]
    return Difference(float(means[0] - means[1]), float(low), float(high), float((gap <= 0).mean()), len(data))


def apgr_draws(data: RoutingData, routers: Sequence[Sequence[Floats]], draws: int, seed: int) -> Floats:
    """Return draws x routers bootstrapped APGR values; prompts are drawn, and in a draw all routers get the same ones.

    Draws in which the strong model is no better say nothing and count as 0.5. Memory does not grow with `draws`.
    """
    rng = np.random.default_rng(seed)
    sorted_: list[list[tuple[Ints, Ints]]] = [[_blocks(score) for score in scores] for scores in routers]
    _, prompt = np.unique(data.same, return_inverse=True)
    kinds = int(prompt.max()) + 1
    gain, found = data.gain, np.full((draws, len(routers)), 0.5)
    for draw in range(draws):
        times = np.bincount(rng.integers(0, kinds, kinds), minlength=kinds)[prompt].astype(np.float64)
        total, weighed = times.sum(), times * gain
        whole = weighed.sum()
        if whole <= 0:
            continue
        for place, each in enumerate(sorted_):
            areas = []
            for order, starts in each:
                shares = np.add.reduceat(times[order], starts) / total
                reached = np.cumsum(np.add.reduceat(weighed[order], starts)) / whole
                areas.append(float(shares @ reached - 0.5 * (shares @ np.diff(reached, prepend=0.0))))
            found[draw, place] = np.mean(areas)
    return found


def importance(data: RoutingData, made: OutOfFold, seed: int = 0, times: int = 3) -> dict[str, float]:
    """Return how much APGR is lost when one block of columns is shuffled within a fold, largest first.

    Each fold's own router is asked again, so nothing is measured on rows it was fitted on. Blocks that say the same stand
    in for each other, so a small loss does not mean a block is useless. Source: Breiman, Random Forests (2001).
    """
    whole = apgr(call_performance_curve(data.weak, data.strong, made.score))
    rng = np.random.default_rng(seed)
    found = {}
    for name, columns in data.blocks().items():
        lost = []
        for _ in range(times):
            score = made.score.copy()
            for fold, member in zip(np.unique(made.fold).tolist(), made.members, strict=True):
                rows = np.flatnonzero(made.fold == fold)
                x = data.x[rows].copy()
                x[:, columns] = x[rng.permutation(len(rows))][:, columns]
                score[rows] = member.predict(x)
            lost.append(whole - apgr(call_performance_curve(data.weak, data.strong, score)))
        found[name] = float(np.mean(lost))
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))


class Cut(NamedTuple):
    """A threshold, and the share of strong calls and quality it had on the rows it was chosen on."""

    threshold: float
    share: float
    quality: float


def threshold_for_share(data: RoutingData, score: Floats, share: float) -> Cut:
    """Return the lowest threshold that sends at most `share` of the rows to the strong model."""
    cuts, shares, quality, _ = _cuts(data, score)
    at = int(np.flatnonzero(shares <= share + 1e-12)[-1])
    return Cut(float(cuts[at]), float(shares[at]), float(quality[at]))


def threshold_for_quality(data: RoutingData, score: Floats, target: float, sure: bool = True) -> Cut:
    """Return the highest threshold whose quality is `target` times the strong model's.

    With `sure` it is the one-sided 95 % lower bound of (quality - target * strong) that must reach zero, rows paired.
    When no threshold does, everything goes to the strong model.
    """
    cuts, shares, quality, squares = _cuts(data, score, target)
    mean = quality - target * data.strong.mean()
    bound = lower_bound(mean, squares - mean**2, len(data)) if sure else mean
    reached = np.flatnonzero(bound >= 0)
    at = int(reached[0]) if len(reached) else len(cuts) - 1
    return Cut(float(cuts[at]), float(shares[at]), float(quality[at]))


def _cuts(data: RoutingData, score: Floats, target: float = 1.0) -> tuple[Floats, Floats, Floats, Floats]:
    """Per threshold, highest first: it, share, quality, and the mean square of (quality - target * strong)."""
    order, starts = _blocks(score)
    ends = np.append(starts[1:], len(score))
    weak, strong = (data.weak - target * data.strong)[order], ((1 - target) * data.strong)[order]
    taken, squares = np.cumsum(data.gain[order]), np.cumsum(strong**2 - weak**2)
    at = ends - 1
    n = len(score)
    cuts = np.concatenate([[np.nextafter(score[order[0]], np.inf)], score[order][starts]])
    shares = np.concatenate([[0.0], ends / n])
    quality = data.weak.mean() + np.concatenate([[0.0], taken[at]]) / n
    return cuts, shares, quality, (weak**2).mean() + np.concatenate([[0.0], squares[at]]) / n


def _blocks(score: Floats) -> tuple[Ints, Ints]:
    """The order by score, highest first, and where in it each block of equal scores starts."""
    order = np.argsort(-score, kind="stable").astype(np.int32)
    starts = np.concatenate([[0], np.flatnonzero(np.diff(score[order])) + 1]).astype(np.int32)
    return order, starts


def _rows(scores: Floats | Sequence[Floats]) -> list[Floats]:
    if isinstance(scores, np.ndarray) and scores.ndim == 1:
        return [scores]
    return [np.asarray(one, dtype=np.float64) for one in scores]
