"""Can the pool's members and the splits be believed? Checks that go before any talk of routing."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

import msgspec
import numpy as np
import xxhash
from msgspec import Struct

from rheostat.lab.outcomes import SPLITS, Floats, ModelInfo, OutcomesTable
from rheostat.types import text_of

UNDERFIT_DROP: Final = 0.10
"""Relative fall of the train loss by rescaling alone from which a model counts as under-fitted (see `rescaling`)."""
UNDERFIT_SCALE: Final = 1.5
"""... if its scores also ask to be sharpened by at least this factor."""
OVERFIT_GAP: Final = 0.10
SEPARATED: Final = 0.995
"""Train accuracy from which rescaling says nothing: a model that is right on every row can always be surer."""

LIKENESS: Final = "Unicode NFKC, case folded, punctuation and white space as one space"
"""The rule by which two inputs count as the same question."""


class Flag(Struct, frozen=True):
    """One thing a reader must know. `kind` is a short fixed word, `about` a model, a split or a file, `text` a sentence."""

    kind: str
    about: str
    text: str


class Member(Struct, frozen=True, kw_only=True):
    """How well one model does on each split (None where there are no usable rows), and how its training ended.

    `loss_drop` is the share of its train loss that rescaling its scores would remove, `scale` the best factor.
    """

    model: str
    version: str
    train: float | None
    dev: float | None
    test: float | None
    rows: tuple[int, int, int]
    converged: bool | None
    iterations: int | None
    max_iterations: int | None
    loss_drop: float | None
    scale: float | None


class Overlap(Struct, frozen=True):
    """Inputs that occur in more than one split, by the rule of likeness; `groups` counts distinct inputs."""

    groups: int
    repeated: int
    crossing: int
    test_rows: int


class Trust(Struct, frozen=True):
    """The members, the flags, and the overlap of splits (None when the table kept no inputs)."""

    members: tuple[Member, ...]
    flags: tuple[Flag, ...]
    overlap: Overlap | None


def trust(table: OutcomesTable, stages: Sequence[str] | None = None) -> Trust:
    """Check every model and the splits.

    Args:
        stages: cheapest first; each is also compared with the one before it. By default the table's order.
    """
    names = tuple(stages) if stages is not None else table.models
    members = tuple(_member(table, name) for name in names)
    flags: list[Flag] = []
    for member in members:
        flags += _training_flags(member)
        flags += _source_flags(member.model, table.model_info[member.model], table)
    flags += [flag for low, high in pairwise(members) for flag in _order_flags(low, high)]
    overlap = overlaps(table)
    if overlap is not None and overlap.crossing:
        text = (
            f"{overlap.crossing} of {overlap.groups} distinct inputs occur in more than one split ({overlap.test_rows} test "
            f"rows are repeats of train or dev rows); models look better on questions they have seen"
        )
        flags.append(Flag("split overlap", "splits", text))
    return Trust(members, tuple(flags), overlap)


def _member(table: OutcomesTable, name: str) -> Member:
    info = table.model_info[name]
    usable = table.complete((name,))
    right = table.correct(name)
    rows, accuracies = [], []
    for code in range(len(SPLITS)):
        mask = usable & (table.split == code)
        rows.append(int(mask.sum()))
        accuracies.append(float(right[mask].mean()) if mask.any() else None)
    card = info.card
    found = rescaling(table, name)
    train = accuracies[0] if accuracies[0] is not None or card is None else card.train_accuracy
    dev = accuracies[1] if accuracies[1] is not None or card is None else card.dev_accuracy
    return Member(
        model=name,
        version=info.version,
        train=train,
        dev=dev,
        test=accuracies[2],
        rows=(rows[0], rows[1], rows[2]),
        converged=card.converged if card is not None else None,
        iterations=card.iterations if card is not None else None,
        max_iterations=card.max_iterations if card is not None else None,
        loss_drop=found[0] if found is not None else None,
        scale=found[1] if found is not None else None,
    )


def rescaling(table: OutcomesTable, name: str) -> tuple[float, float] | None:
    """Return how much of a model's train loss one factor on its log scores would remove, and that factor.

    At a maximum-likelihood fit of a linear-in-weights model no rescaling of its own scores lowers the loss on its own
    training rows: the derivative along the weights is zero there. A fit that stopped early, or was held small by strong
    regularisation, is too timid: its scores ask to be sharpened (factor above 1). The factor is the inverse of the
    temperature of Guo et al. (2017), fitted on train instead of dev, by golden-section search.

    Returns None without score distributions on train rows, or when (nearly) every train row is right, where a model can
    always be surer.
    """
    columns = table.model(name)
    if columns.scores is None:
        return None
    mask = table.complete((name,)) & (table.split == 0)
    mask &= ~np.isnan(columns.scores[:, 0]) if columns.scores.shape[1] else False
    rows = np.flatnonzero(mask)
    if len(rows) < 20 or float(table.correct(name)[rows].mean()) >= SEPARATED:
        return None
    rows = rows[:: max(1, len(rows) // 20_000)]
    scores = np.clip(columns.scores[rows].astype(np.float64), 1e-12, None)
    logs, own = np.log(scores), np.log(scores)[np.arange(len(rows)), table.truth[rows]]
    now = _loss(logs, own, 1.0)
    best = _golden(lambda x: _loss(logs, own, float(np.exp(x))), np.log(0.05), np.log(50.0))
    scale = float(np.exp(best))
    return (max(0.0, (now - _loss(logs, own, scale)) / now) if now > 0.0 else 0.0), scale


def _loss(logs: Floats, own: Floats, scale: float) -> float:
    scaled = logs * scale
    top = scaled.max(axis=1)
    return float((top + np.log(np.exp(scaled - top[:, None]).sum(axis=1)) - own * scale).mean())


def _golden(loss: Callable[[float], float], low: float, high: float) -> float:
    """The minimum of a function with one valley."""
    ratio = (5**0.5 - 1) / 2
    a, b = high - ratio * (high - low), low + ratio * (high - low)
    at_a, at_b = loss(a), loss(b)
    while high - low > 1e-3:
        if at_a < at_b:
            high, b, at_b = b, a, at_a
            a = high - ratio * (high - low)
            at_a = loss(a)
        else:
            low, a, at_a = a, b, at_b
            b = low + ratio * (high - low)
            at_b = loss(b)
    return (low + high) / 2


def _training_flags(member: Member) -> list[Flag]:
    flags: list[Flag] = []
    name = member.model
    if member.converged is False:
        steps = f" after {member.iterations} iterations" if member.iterations is not None else ""
        flags.append(Flag("under-trained", name, f"its training stopped{steps} before it had converged"))
    if (
        member.loss_drop is not None
        and member.scale is not None
        and member.loss_drop >= UNDERFIT_DROP
        and member.scale >= UNDERFIT_SCALE
    ):
        text = (
            f"under-fitted: stopped early or over-regularised. Multiplying its own log scores by {member.scale:.2g} lowers "
            f"its train loss by {member.loss_drop:.0%}; at a finished fit no factor lowers it noticeably"
        )
        flags.append(Flag("under-trained", name, text))
    if member.train is not None and member.dev is not None and member.train - member.dev >= OVERFIT_GAP:
        text = f"train accuracy {member.train:.2%} is far above dev {member.dev:.2%}: it knows its rows by heart (overfit)"
        if member.train >= SEPARATED:
            text += ", or saw the label in its features (leak)"
        flags.append(Flag("overfit", name, text))
    return flags


def _order_flags(low: Member, high: Member) -> list[Flag]:
    """A dearer model that is worse on the very rows it was trained on has not been trained enough (or is too simple)."""
    if low.train is None or high.train is None or low.dev is None or high.dev is None:
        return []
    if high.train >= low.train or high.dev > low.dev:
        return []
    text = (
        f"worse than {low.model} on train ({high.train:.2%} against {low.train:.2%}) and on dev ({high.dev:.2%} "
        f"against {low.dev:.2%}): the dearer model is under-trained or not the better one"
    )
    return [Flag("large worse", high.model, text)]


def _source_flags(name: str, info: ModelInfo, table: OutcomesTable) -> list[Flag]:
    if info.card is None or info.card.data_hash is None:
        return []
    return [
        Flag("own training file", name, f"it was trained on {source.name}, whose rows stand here as {source.split}")
        for source in table.sources
        if source.hash == info.card.data_hash and source.split != "train"
    ]


_GAPS: Final = re.compile(r"[\W_]+")


def likeness(text: str) -> str:
    """Return what two inputs have in common when they count as the same question (see LIKENESS)."""
    return _GAPS.sub(" ", unicodedata.normalize("NFKC", text).casefold()).strip()


def _key(row: int, raw: str | None) -> str:
    """Texts by likeness; features exactly as they are, since there a sign or a point matters."""
    if raw is None:
        return f"\x00{row}"
    text = text_of(msgspec.json.decode(raw))
    return likeness(text) or text or raw


def groups(table: OutcomesTable) -> np.ndarray[tuple[int], np.dtype[np.uint64]] | None:
    """Return a number per row that is equal for inputs that count as the same; None when inputs were not kept.

    An input without any letter or digit is like itself only.
    """
    if table.inputs is None:
        return None
    keys = (_key(row, text) for row, text in enumerate(table.inputs))
    hashes = (xxhash.xxh3_64_intdigest(key.encode("utf-8", "surrogatepass")) for key in keys)
    return np.fromiter(hashes, dtype=np.uint64, count=len(table))


def overlaps(table: OutcomesTable) -> Overlap | None:
    """Count inputs that stand in more than one split; None when inputs were not kept."""
    keys = groups(table)
    if keys is None:
        return None
    distinct, group, counts = np.unique(keys, return_inverse=True, return_counts=True)
    seen = np.zeros((len(distinct), len(SPLITS)), dtype=bool)
    seen[group, table.split] = True
    repeats = (table.split == 2) & seen[group, :2].any(axis=1)
    return Overlap(len(distinct), int((counts > 1).sum()), int((seen.sum(axis=1) > 1).sum()), int(repeats.sum()))
