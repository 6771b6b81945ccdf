"""Does one character change the tier? Edits, how often they do, and what keeps them from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from msgspec import Struct

from rheostat.lab.bootstrap import Z95_ONE_SIDED
from rheostat.lab.difficulty.examples import Examples, measured
from rheostat.lab.metrics import Floats

_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz ,.!?0123456789"
_CHINESE: Final = "的一是不了人我在有他这为之大来以个中上们，。！？"

Predict = Callable[[Any], Floats]
"""From (n, d) numbers to (n,) scores."""


class Flips(Struct, frozen=True, kw_only=True):
    """How often one changed character changed the tier: of single edits, and of texts when the worst of all edits counts.

    `held_` are the same with hysteresis: the score must also go the margin beyond the border.
    """

    texts: int
    edits: int
    single: float
    worst: float
    held_single: float
    held_worst: float
    margin: float


def edited(text: str, rng: np.random.Generator) -> str:
    """Return the text with one character put in, taken out, replaced, or swapped with the next; never the text itself."""
    letters = _CHINESE if sum(map(_is_chinese, text)) * 2 > len(text) else _LETTERS
    for _ in range(20):
        at, kind = int(rng.integers(0, len(text) + 1)), int(rng.integers(0, 4))
        letter = letters[int(rng.integers(0, len(letters)))]
        rest = text[at:]
        made = {
            0: text[:at] + letter + rest,
            1: text[:at] + rest[1:],
            2: text[:at] + letter + rest[1:],
            3: text[:at] + rest[1:2] + rest[:1] + rest[2:],
        }[kind]
        if made != text:
            return made
    return text + letters[0]


def with_edits(rows: Examples, copies: int, seed: int = 0) -> Examples:
    """Return the rows, followed by `copies` of each with one character changed and the label kept."""
    rng = np.random.default_rng(seed)
    texts = [edited(text, rng) for _ in range(copies) for text in rows.texts]
    more = [measured(texts, rows.features)] if texts else []
    return Examples(
        (*rows.texts, *texts),
        rows.features,
        np.concatenate([rows.x, *more]),
        np.tile(rows.error, copies + 1),
        np.tile(rows.split, copies + 1),
        np.tile(rows.like, copies + 1),
        rows.data_hash,
    )


def edit_scores(
    predict: Predict, features: Sequence[str], texts: Sequence[str], edits: int, seed: int
) -> tuple[Floats, Floats]:
    """Return the scores of the texts, (n,), and of `edits` versions of each with one character changed, (n, edits)."""
    rng = np.random.default_rng(seed)
    versions = [edited(text, rng) for text in texts for _ in range(edits)]
    before, after = predict(measured(texts, features)), predict(measured(versions, features))
    return before, after.reshape(len(texts), edits)


def flips(
    predict: Predict,
    features: Sequence[str],
    texts: Sequence[str],
    cuts: Sequence[float],
    *,
    margin: float = 0.0,
    edits: int = 10,
    seed: int = 0,
) -> Flips:
    """Count how often one changed character changes the tier, without and with a hysteresis of `margin`.

    Args:
        cuts: borders of the tiers, rising.
        edits: random edits a text; the worst of them stands for an adversary who tries as often.

    Raises:
        ValueError: no texts or no cuts.
    """
    if not len(texts) or not len(cuts):
        raise ValueError("flips need at least one text and one cut")
    before, after = edit_scores(predict, features, texts, edits, seed)
    borders = np.asarray(cuts, dtype=np.float64)
    plain = np.searchsorted(borders, before, side="right")[:, None] != np.searchsorted(borders, after, side="right")
    held = plain & (_beyond(before, after, borders) >= margin)
    return Flips(
        texts=len(texts), edits=edits, single=float(plain.mean()), worst=float(plain.any(axis=1).mean()),
        held_single=float(held.mean()), held_worst=float(held.any(axis=1).mean()), margin=margin,
    )  # fmt: skip


def margin_for(
    predict: Predict,
    features: Sequence[str],
    texts: Sequence[str],
    cuts: Sequence[float],
    *,
    most: float = 0.05,
    edits: int = 10,
    seed: int = 1,
) -> float:
    """Return the least hysteresis with which the worst of `edits` changes flips at most the share `most` of the texts, kept
    by its one-sided 95 % bound (normal limit), so that fresh texts keep it too."""
    before, after = edit_scores(predict, features, texts, edits, seed)
    borders = np.asarray(cuts, dtype=np.float64)
    moved = np.searchsorted(borders, before, side="right")[:, None] != np.searchsorted(borders, after, side="right")
    need = np.sort(np.where(moved, _beyond(before, after, borders), -1.0).max(axis=1))[::-1]
    allowed = max(0.0, most * len(need) - Z95_ONE_SIDED * np.sqrt(len(need) * most * (1.0 - most)))
    last = need[min(int(allowed), len(need) - 1)]  # so many texts may go further than this
    return float(np.ceil((max(last, 0.0) + 1e-6) * 1e4) / 1e4) if last >= 0.0 else 0.0


def _beyond(before: Floats, after: Floats, borders: Floats) -> Floats:
    """How far each score lies beyond the nearest border of the tier its text was in, (n, edits); 0 inside."""
    ends = np.concatenate([[-np.inf], borders, [np.inf]])
    tier = np.searchsorted(borders, before, side="right")
    low, high = ends[tier][:, None], ends[tier + 1][:, None]
    found: Floats = np.maximum(np.maximum(low - after, after - high), 0.0)
    return found


def _is_chinese(character: str) -> bool:
    return "\u3400" <= character <= "\u9fff"
