"""Which rows of an outcomes table a trainer learns from, and what it reads of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rheostat.cli.console import note
from rheostat.cli.table_warnings import warn

if TYPE_CHECKING:
    from rheostat.lab.outcomes import OutcomesTable

MOST: Final = 50_000
"""Rows to learn from; keeps time and memory within bounds."""


def rows_of(table: OutcomesTable, on: str, models: Sequence[str]) -> tuple[OutcomesTable, OutcomesTable | None]:
    """Return the rows of the named splits, and those of test to confirm on, None when test is learned from or empty.

    More than 50,000 rows are thinned out by chance. Warns when a model looks trained on the split train.

    Raises:
        ValueError: no such split.
    """
    import numpy as np

    from rheostat.lab.outcomes import SPLITS

    splits = [name.strip() for name in on.split(",")]
    if unknown := [name for name in splits if name not in SPLITS]:
        raise ValueError(f"--on takes {', '.join(SPLITS)}, with commas between, got {unknown[0]!r}")
    rows = np.flatnonzero(np.isin(table.split, [SPLITS.index(name) for name in splits]))
    if len(rows) > MOST:
        note(f"learning from {MOST:,} of {len(rows):,} rows, taken by chance")
        rows = np.sort(np.random.default_rng(0).permutation(rows)[:MOST])
    warn(table, table.subset(rows), models, on, thresholds=False)
    if "train" in splits:
        _warn_of_train(table, models)
    rest = table.select(split="test")
    rest = rest.subset(np.arange(min(len(rest), MOST)))
    return table.subset(rows), None if "test" in splits or not rest.complete(models).any() else rest


def features_of(features: str | None) -> tuple[str, ...]:
    """Return the features named with commas between; those of the text when none are."""
    from rheostat.lab.routers import TEXT

    return TEXT if features is None else tuple(name.strip() for name in features.split(",") if name.strip())


def embedder(folder: str | None) -> Callable[[str], Any] | None:
    """Return what embeds a text, from a folder with encoder.onnx and tokenizer.json."""
    from rheostat.pool.onnx_tokens import TextEncoder

    return None if folder is None else TextEncoder(Path(folder, "encoder.onnx"), Path(folder, "tokenizer.json"), 128).embed


def _warn_of_train(table: OutcomesTable, models: Sequence[str]) -> None:
    """A model that was fitted on the train rows knows them by heart; what it got right there teaches the wrong thing."""
    import numpy as np

    parts = [table.select(split=split) for split in ("train", "dev")]
    for name in models:
        right = [part.correct(name)[part.complete((name,))] for part in parts]
        if min(map(len, right)) < 2:
            continue
        error = np.sqrt(sum(each.var() / len(each) for each in right))
        if right[0].mean() - right[1].mean() > max(3.0 * error, 0.01):
            note(
                f"warning: {name} is right on {right[0].mean():.1%} of train and {right[1].mean():.1%} of dev: it may have "
                "been trained on train. Learn from rows it has not seen: --on dev"
            )
