"""Which beginnings of segments say that a small model can write the rest: chosen on some texts, judged on others."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from msgspec import Struct

from rheostat.chance import chance
from rheostat.errors import MissingExtra, RheostatError
from rheostat.segments.borders import Segment
from rheostat.segments.cues import Cue, Cues

LEAST = 3
"""A cue that was seen less often on the texts to choose from is not chosen."""


class CueError(RheostatError):
    """Nothing can be learned from these texts; the message says why."""

    type = "cue_error"


class Passage(Struct, frozen=True):
    """One segment as it was measured: the number of its text, what it begins with, and how far ahead the likeliest token was
    on average in [0, 1], in the small model's continuation (`margin`) and in the strong model's own words (`own_margin`).
    `same` says that both wrote the same."""

    text: int
    cue: str
    margin: float
    own_margin: float
    same: bool


class Chosen(Struct, frozen=True, kw_only=True):
    """What was learned, and how it holds on the other half of the texts: the share of segments that the chosen cues begin,
    the mean margin of the small model and the share of equal continuations there, with a chosen cue and without one."""

    cues: Cues
    share: float
    margin: float
    margin_else: float
    same: float
    same_else: float
    passages: int


def choose(
    passages: Sequence[Passage], share: float, at: Segment, strong: tuple[str, str], small: tuple[str, str]
) -> Chosen:
    """Choose cues on one half of the texts, drawn by hash, the surest first, until they begin `share` of the segments there.

    How sure a cue is: the mean margin of the small model after it, less its standard error, so that a rare cue needs more.
    A cue below the mean of all is never chosen.

    Args:
        strong: the strong model's name and version; `small` likewise.

    Raises:
        CueError: there are too few passages on either half.
    """
    texts = {passage.text for passage in passages}
    fit, held = ([p for p in passages if chooses(p.text) is half] for half in (True, False))
    if min(len(fit), len(held)) < 2 * LEAST:
        raise CueError(
            f"{len(passages)} segments in {len(texts)} texts are too few to learn from: give more texts, or longer ones"
        )
    by_cue = _by_cue(fit)
    overall = fmean(p.margin for p in fit)
    margins = {cue: [p.margin for p in found] for cue, found in by_cue.items() if len(found) >= LEAST}
    picked: set[str] = set()
    taken = 0
    for cue in sorted(margins, key=lambda cue: -_sure(margins[cue])):
        if fmean(margins[cue]) <= overall or (picked and taken + len(by_cue[cue]) > share * len(fit)):
            continue
        picked.add(cue)
        taken += len(by_cue[cue])
    elsewhere = _by_cue(held)
    cues = tuple(
        Cue(
            cue, len(found), fmean(p.margin for p in found), fmean(p.own_margin for p in found), cue in picked,
            fmean(p.margin for p in elsewhere[cue]) if cue in elsewhere else None,
        )
        for cue, found in sorted(by_cue.items(), key=lambda item: -len(item[1]))
    )  # fmt: skip
    on, off = [p for p in held if p.cue in picked], [p for p in held if p.cue not in picked]
    return Chosen(
        cues=Cues(
            strong=strong[0], strong_version=strong[1], small=small[0], small_version=small[1], at=at,
            share=taken / len(fit), cues=cues,
        ),
        share=len(on) / len(held),
        margin=_mean(p.margin for p in on),
        margin_else=_mean(p.margin for p in off),
        same=_mean(p.same for p in on),
        same_else=_mean(p.same for p in off),
        passages=len(passages),
    )  # fmt: skip


def chooses(text: int) -> bool:
    """Return whether cues are chosen on this text; on the others they are judged."""
    return chance("cues", str(text)) < 0.5


def plot(cues: Cues, path: Path) -> None:
    """Draw every cue that was seen on both halves: its margin where it was chosen, against that on the other texts.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("--plot", "report") from None
    figure = Figure(figsize=(6.4, 5.2), layout="constrained")
    axes: Any = figure.add_subplot()
    places = [place for cue in cues.cues if cue.held is not None for place in (cue.margin, cue.held)] or [0.0, 1.0]
    low, high = max(0.0, min(places) - 0.05), min(1.0, max(places) + 0.1)
    axes.plot((low, high), (low, high), color="#a8a29e", linewidth=0.8, zorder=1)
    for chosen, colour, name in (
        (True, "#0b6e99", "the small model writes on"),
        (False, "#c2410c", "the strong model stays"),
    ):
        kept = [(cue, cue.held) for cue in cues.cues if cue.chosen is chosen and cue.held is not None]
        x, y = [cue.margin for cue, _ in kept], [held for _, held in kept]
        axes.scatter(x, y, s=[12.0 + 6.0 * cue.count for cue, _ in kept], color=colour, alpha=0.6, label=name, zorder=2)
        for place, (cue, held) in enumerate(sorted(kept, key=lambda each: each[0].margin)):
            axes.annotate(cue.cue, (cue.margin, held), (6, 6 - 12 * (place % 2)), textcoords="offset points", fontsize=8)
    axes.set_xlabel("mean margin of the small model after the cue, texts to choose from")
    axes.set_ylabel("the same, other texts")
    axes.set_title(f"cues of {cues.strong} for {cues.small} (size: how often seen)")
    axes.set(xlim=(low, high), ylim=(low, high))
    legend = axes.legend(loc="upper left", frameon=False)
    for handle in legend.legend_handles:
        handle.set_sizes([30.0])
    figure.savefig(path, dpi=120)


def _by_cue(passages: Iterable[Passage]) -> dict[str, list[Passage]]:
    found: dict[str, list[Passage]] = defaultdict(list)
    for passage in passages:
        found[passage.cue].append(passage)
    return dict(found)


def _sure(margins: Sequence[float]) -> float:
    return fmean(margins) - pstdev(margins) / math.sqrt(len(margins))


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return fmean(known) if known else float("nan")
