"""The labelled sets the benchmarks read: JSON lines, gzipped, in train, dev and test."""

from __future__ import annotations

import gzip
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

TEXT_SETS = ("banking77", "clinc150", "clinc150_oos", "sst2", "goemotions_polarity", "davidson_hate")
TABLE_SETS = ("online_shoppers",)
SETS = (*TEXT_SETS, *TABLE_SETS)
SPLITS = ("train", "dev", "test")
_FILES = {"clinc150_oos": "clinc150"}
_MOST_TRAIN = 16_384  # rows of goemotions_polarity beyond this change little and cost minutes of embedding
NAMES = {
    "banking77": "Banking77 (Casanueva et al. 2020)",
    "clinc150": "CLINC150, in-scope rows (Larson et al. 2019)",
    "clinc150_oos": "CLINC150 with out-of-scope rows (Larson et al. 2019)",
    "sst2": "SST-2 (Socher et al. 2013)",
    "goemotions_polarity": "GoEmotions, polarity (Demszky et al. 2020)",
    "davidson_hate": "Hate speech and offensive language (Davidson et al. 2017)",
    "online_shoppers": "Online shoppers' intention (Sakar and Kastro 2018, UCI 468)",
}


class Rows(msgspec.Struct, frozen=True):
    """One split: the inputs (text, or a mapping of features) and their labels."""

    inputs: list[Any]
    labels: list[str]


def data_folder() -> Path:
    """Return the folder with the sets: `RHEOSTAT_DATA`, else `../shared/data`."""
    return Path(os.environ.get("RHEOSTAT_DATA", "../shared/data"))


def why_absent(name: str) -> str | None:
    """Return what to do when a set is not there, or None when it is."""
    folder = data_folder() / "datasets" / _FILES.get(name, name)
    missing = [split for split in SPLITS if not (folder / f"{split}.jsonl.gz").is_file()]
    if not missing:
        return None
    return (
        f"{name} skipped: {NAMES[name]} is not shipped; put train, dev and test as {{text, label}} lines into "
        f"{folder}/<split>.jsonl.gz, or set RHEOSTAT_DATA to where `datasets/` lies"
    )


def read_set(name: str) -> Mapping[str, Rows]:
    """Return train, dev and test; of CLINC150 with or without the out-of-scope rows."""
    folder = data_folder() / "datasets" / _FILES.get(name, name)
    found = {}
    for split in SPLITS:
        with gzip.open(folder / f"{split}.jsonl.gz", "rb") as file:
            rows = [row for row in map(msgspec.json.decode, file) if name != "clinc150" or row["label"] != "oos"]
        if name == "goemotions_polarity" and split == "train":
            rows = rows[:_MOST_TRAIN]
        labels = [str(row.pop("label")) for row in rows]
        found[split] = Rows([row if name in TABLE_SETS else row["text"] for row in rows], labels)
    return found
