"""What the difficulty study works on: out-of-fold errors of the small model on train, its errors on dev and test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
import xxhash

from bench.chinese_models import characters
from bench.embeddings import CACHE
from bench.labelled import CHINESE_SETS, SPLITS, Rows, read_set
from bench.pools import outcomes, train_pool
from bench.text_models import tfidf
from rheostat.lab.outcomes import ModelColumns, OutcomesTable
from rheostat.lab.trust import groups

if TYPE_CHECKING:
    from numpy.typing import NDArray

FOLDS: Final = 5


def study_table(name: str, tell: Callable[[str], None]) -> OutcomesTable:
    """Return the set's outcomes with the small model's answers on train being those of models that did not see the row.

    Train is dealt into five folds by a hash of its groups of like texts; each fold is answered by a model fitted on the
    other four, and kept under `.cache`. The large model's train answers stay as they are and are not read.
    """
    table = outcomes(train_pool(name, tell))
    train = np.flatnonzero(table.split == 0)
    scores = _out_of_fold(name, table, train, tell)
    small = table.model("small")
    label, confidence = small.label.copy(), small.confidence.copy()
    label[train], confidence[train] = scores.argmax(axis=1), scores.max(axis=1)
    fresh = ModelColumns(label, confidence, small.latency_s, small.cost, small.failure, None)
    return OutcomesTable(
        ids=table.ids,
        split=table.split,
        truth=table.truth,
        labels=table.labels,
        columns={**table.columns, "small": fresh},
        model_info={name: msgspec.structs.replace(info, card=None) for name, info in table.model_info.items()},
        data_hash=table.data_hash,
        inputs=table.inputs,
    )


def _out_of_fold(
    name: str, table: OutcomesTable, train: NDArray[np.int64], tell: Callable[[str], None]
) -> NDArray[np.float64]:
    rows, like = read_set(name), groups(table)
    assert like is not None
    texts, labels = rows["train"].inputs, rows["train"].labels
    fold = np.array([xxhash.xxh3_64_intdigest(int(key).to_bytes(8), seed=5) % FOLDS for key in like[train]])
    place = {label: code for code, label in enumerate(table.labels)}
    found = np.zeros((len(train), len(table.labels)))
    for held in range(FOLDS):
        inside, outside = np.flatnonzero(fold == held), np.flatnonzero(fold != held)
        parts = {"train": outside, "test": inside}
        part: Mapping[str, Rows] = {
            **{split: Rows([texts[i] for i in at], [labels[i] for i in at]) for split, at in parts.items()},
            "dev": rows["dev"],
        }
        digest = xxhash.xxh3_64_hexdigest(msgspec.json.encode(part))
        path = CACHE / "members" / f"{name}-small-fold{held}-{digest}.npy"
        if not path.is_file():
            tell(f"{name}: small model without fold {held + 1} of {FOLDS} ...")
            truth = {split: np.array([place[label] for label in part[split].labels], dtype=np.int32) for split in SPLITS}
            member = characters(part, truth) if name in CHINESE_SETS else tfidf(part, truth)
            seen = np.unique(truth["train"])
            wide = np.zeros((len(inside), len(table.labels)))
            wide[:, seen] = member.scores["test"]
            np.save(path, wide)
        found[inside] = np.load(path)
    return found
