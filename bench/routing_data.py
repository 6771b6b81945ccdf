"""The routing sets as rows to learn from: RouteLLM's MMLU, GSM8K and MT-bench outcomes, and measured classifier cascades."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import xxhash

from bench.embeddings import CACHE, embed
from bench.labelled import data_folder
from rheostat.lab.metrics import Floats
from rheostat.lab.outcomes import Ints
from rheostat.lab.routers import TEXT, RoutingData, same_prompts
from rheostat.signals import TextFeatures

Tell = Callable[[str], None]
Row = dict[str, str]
NEEDED = ("routellm-mmlu/outcomes.csv", "routellm-gsm8k/outcomes.csv", "routellm-mtbench/outcomes.csv",
          "measured-cascades/headlines.csv")  # fmt: skip
SURFACE = ("answer characters", "answer lines", "numbers", "equal signs", "numbers of the question", "numbers a character",
           "length to the question's", "digits of the longest number", "last number has a point",
           "repeated lines")  # fmt: skip
_NUMBER = re.compile(r"-?\d[\d,]*\.?\d*")


def folder() -> Path:
    """Return where the sets lie: `routing` beside the labelled sets."""
    return data_folder() / "routing"


def absent() -> list[Path]:
    """Return the files that are not there."""
    return [folder() / name for name in NEEDED if not (folder() / name).is_file()]


def read(name: str) -> list[Row]:
    """Return the rows of a CSV file."""
    with (folder() / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def mmlu(tell: Tell) -> RoutingData:
    """MMLU, Mixtral 8x7B and GPT-4: text features and embedding; the 14,037 rows that RouteLLM uses."""
    prompts = [*read("routellm-mmlu/prompts_part1.csv"), *read("routellm-mmlu/prompts_part2.csv")]
    rows = read("routellm-mmlu/outcomes.csv")
    if [row["id"] for row in rows] != [row["id"] for row in prompts]:
        raise ValueError("routellm-mmlu: prompts and outcomes are not of the same rows in the same order")
    return _pair("mmlu", rows, [row["prompt"] for row in prompts], tell)


def subjects() -> list[str]:
    """Return MMLU's subject of each row of `mmlu`."""
    return [row["subject"] for row in read("routellm-mmlu/outcomes.csv") if row["contaminated"] == "0"]


def with_group(data: RoutingData, groups: Sequence[str], field: str = "meta.subject") -> RoutingData:
    """Return the rows with one-hot columns for their group."""
    values = sorted(set(groups))
    onehot = np.array(groups)[:, None] == np.array(values)[None, :]
    at = len(data.features)
    x = np.concatenate([data.x[:, :at], onehot.astype(np.float32), data.x[:, at:]], axis=1)
    return replace(data, features=(*data.features, *(f"{field}={value}" for value in values)), x=x)


def by_group(data: RoutingData, groups: Sequence[str]) -> RoutingData:
    """Return the rows with whole groups kept together in every fold, inner ones too, and drawn together in intervals."""
    _, codes = np.unique(np.array(groups), return_inverse=True)
    return replace(data, same=codes.astype(np.int32))


def gsm8k(tell: Tell) -> RoutingData:
    """GSM8K before any answer: text features and embedding of the problem; 1,307 rows."""
    rows = read("routellm-gsm8k/outcomes.csv")
    return _pair("gsm8k", rows, [row["prompt"] for row in rows], tell)


def gsm8k_answered(tell: Tell) -> RoutingData:
    """GSM8K after the weak model answered: besides the problem, what its answer looks like and means."""
    data, rows = gsm8k(tell), [row for row in read("routellm-gsm8k/outcomes.csv") if row["contaminated"] == "0"]
    answers = [row["weak_response"] for row in rows]
    surface = np.array([_surface(row["prompt"], row["weak_response"]) for row in rows], dtype=np.float32)
    parts = [data.x[:, : len(TEXT)], surface, text_features(answers), data.x[:, len(TEXT) :], embed(answers, tell)]
    names = (*TEXT, *(f"surface {name}" for name in SURFACE), *(f"answer {name}" for name in TEXT))
    return replace(data, features=names, x=np.concatenate(parts, axis=1), embedding=2 * data.embedding)


def unfinished() -> Floats:
    """Return 1 for every row of `gsm8k_answered` whose answer lacks the final `#### number` that the set's scorer reads."""
    rows = [row for row in read("routellm-gsm8k/outcomes.csv") if row["contaminated"] == "0"]
    return np.array([float("####" not in row["weak_response"]) for row in rows])


def surface_only(data: RoutingData) -> RoutingData:
    """Return of `gsm8k_answered` only the surface of the answer."""
    kept = [place for place, name in enumerate(data.features) if name.startswith("surface ")]
    return replace(data, features=tuple(data.features[place] for place in kept), x=data.x[:, kept], embedding=0)


def mtbench() -> tuple[Floats, Floats, Ints]:
    """Return mean judge score of either model on MT-bench's 72 questions, and 1 where the rule says strong."""
    rows = [row for row in read("routellm-mtbench/outcomes.csv") if row["contaminated"] in ("0", "False", "")]
    names = [key.split("__")[1] for key in rows[0] if key.startswith("score__") and key.endswith("__turn1")]
    weak = next(name for name in names if "ixtral" in name)
    strong = next(name for name in names if "gpt-4" in name)

    def score(model: str) -> Floats:
        each = [[float(row[f"score__{model}__turn{turn}"] or "nan") for turn in (1, 2)] for row in rows]
        found: Floats = np.nanmean(np.array(each), axis=1)
        return found

    rule = np.array([row["category"] in ("math", "coding", "reasoning") for row in rows], dtype=np.int32)
    return score(weak), score(strong), rule


def _pair(name: str, rows: Sequence[Row], texts: Sequence[str], tell: Tell) -> RoutingData:
    kept = np.array([row["contaminated"] == "0" for row in rows])
    vectors = embed(texts, tell)[kept]
    rows = [row for row, keep in zip(rows, kept.tolist(), strict=True) if keep]
    texts = [text for text, keep in zip(texts, kept.tolist(), strict=True) if keep]
    weak, strong = (np.array([float(row[f"{side}_correct"]) for row in rows]) for side in ("weak", "strong"))
    x = np.concatenate([text_features(texts), vectors], axis=1)
    names = ("mixtral-8x7b", "gpt-4-1106")
    return RoutingData(TEXT, x, weak, strong, same_prompts(texts), vectors.shape[1], names, data_hash=name)


def text_features(texts: Sequence[str]) -> npt.NDArray[np.float32]:
    """Text features of every text, kept in `.cache/routing`."""
    digest = xxhash.xxh3_64_hexdigest("\x1f".join([*TEXT, *texts]).encode("utf-8", "surrogatepass"))
    path = CACHE / "routing" / f"text-{digest}.npy"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        features = TextFeatures(TEXT)
        found = np.array([list(features.measure(text).values()) for text in texts], dtype=np.float32)
        with path.with_suffix(".part").open("wb") as file:
            np.save(file, found)
        path.with_suffix(".part").replace(path)
    kept: npt.NDArray[np.float32] = np.load(path)
    return kept


def _surface(question: str, answer: str) -> list[float]:
    numbers, lines = _NUMBER.findall(answer), [line.strip() for line in answer.split("\n") if line.strip()]
    asked = set(_NUMBER.findall(question))
    return [
        float(len(answer)),
        float(len(lines)),
        float(len(numbers)),
        float(answer.count("=")),
        float(sum(number in asked for number in numbers)),
        len(numbers) / (1 + len(answer)),
        len(answer) / (1 + len(question)),
        float(max((len(number.replace(",", "")) for number in numbers), default=0)),
        float(bool(numbers) and "." in numbers[-1].rstrip(".")),
        1.0 - len(set(lines)) / max(1, len(lines)),
    ]
