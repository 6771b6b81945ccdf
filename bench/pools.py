"""Pools of a small and a large model, trained on real sets: fitted on train, everything chosen on dev.

Text: tf-idf of words and characters with logistic regression beside a frozen MiniLM with a logistic head. Chinese text: few
character pairs beside all runs of up to five characters. Tables: logistic regression beside LightGBM. Every model's
probabilities are brought to the temperature that fits dev best.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import xxhash

from bench import chinese_models, fits, table_models, text_models
from bench.chinese_models import bayes_weighted, characters
from bench.embeddings import CACHE
from bench.fits import Member
from bench.labelled import CHINESE_SETS, SPLITS, TABLE_SETS, Rows, read_set
from bench.table_models import boosted, logistic
from bench.text_models import frozen, tfidf
from rheostat.lab.outcomes import ModelColumns, ModelInfo, OutcomesTable, TrainingCard
from rheostat.signals.calibrate import fit_temperature

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

Tell = Callable[[str], None]


class Pool(msgspec.Struct, frozen=True):
    """A small and a large model for one set."""

    name: str
    labels: tuple[str, ...]
    inputs: Mapping[str, list[Any]]
    truth: Mapping[str, NDArray[np.int32]]
    members: tuple[Member, ...]


def train_pool(name: str, tell: Tell, planted: str = "") -> Pool:
    """Train both models of one set, or take them from `.cache` when nothing they depend on changed.

    Args:
        planted: the way in which the large model of a text set is left under-trained, a key of `text_models.PLANTS`.
    """
    rows = read_set(name)
    labels = tuple(sorted(set(rows["train"].labels)))
    truth = {split: _codes(rows[split].labels, labels) for split in SPLITS}
    makers: dict[str, Callable[[], Member]]
    sources: tuple[Any, ...] = (fits, table_models, text_models)
    if name in CHINESE_SETS:
        makers = {"small": lambda: characters(rows, truth), "large": lambda: bayes_weighted(rows, truth)}
        sources = (fits, chinese_models)
    elif name in TABLE_SETS:
        makers = {"small": lambda: logistic(rows, truth), "large": lambda: boosted(rows, truth)}
    else:
        makers = {"small": lambda: tfidf(rows, truth), "large": lambda: frozen(rows, truth, tell, planted)}
    members = tuple(
        _kept(f"{name}-{kind}{f'-{planted}' if planted and kind == 'large' else ''}", rows, sources, make, tell)
        for kind, make in makers.items()
    )
    return Pool(name, labels, {split: rows[split].inputs for split in SPLITS}, truth, members)


def outcomes(pool: Pool, *, raw: bool = False) -> OutcomesTable:
    """Return the pool's outcomes as the product's own table, with every model's training card.

    Args:
        raw: leave the probabilities as the models gave them, without the temperature that fits dev best.
    """
    counts = [len(pool.truth[split]) for split in SPLITS]
    return OutcomesTable(
        ids=np.array([f"{split}-{i}" for split, n in zip(SPLITS, counts, strict=True) for i in range(n)], dtype=object),
        split=np.repeat(np.arange(len(SPLITS), dtype=np.int8), counts),
        truth=np.concatenate([pool.truth[split] for split in SPLITS]),
        labels=pool.labels,
        columns={member.name: _columns(member, None if raw else pool.truth["dev"]) for member in pool.members},
        model_info={
            member.name: ModelInfo(cost=member.cost, tier=tier, card=member.card) for tier, member in enumerate(pool.members)
        },
        inputs=np.array([msgspec.json.encode(row).decode() for split in SPLITS for row in pool.inputs[split]], dtype=object),
    )


def _columns(member: Member, truth: NDArray[np.int32] | None) -> ModelColumns:
    """The member's answers, its distributions brought to the temperature that fits dev best, whose truth is given."""
    raw = np.concatenate([member.scores[split] for split in SPLITS])
    temperature = 1.0
    if truth is not None:
        temperature = fit_temperature(member.scores["dev"], member.scores["dev"].argmax(axis=1) == truth).t
    powers = np.maximum(raw, 1e-12) ** (1.0 / temperature)
    scores = powers / powers.sum(axis=1, keepdims=True)
    n = len(scores)
    return ModelColumns(
        label=raw.argmax(axis=1).astype(np.int32),
        confidence=scores.max(axis=1),
        latency_s=np.full(n, member.latency_s),
        cost=np.full(n, member.cost),
        failure=np.zeros(n, dtype=np.int8),
        scores=scores.astype(np.float32),
    )


def _codes(labels: Sequence[str], known: tuple[str, ...]) -> NDArray[np.int32]:
    place = {label: code for code, label in enumerate(known)}
    return np.array([place[label] for label in labels], dtype=np.int32)


def _kept(name: str, rows: Mapping[str, Rows], sources: Sequence[Any], make: Callable[[], Member], tell: Tell) -> Member:
    """Return the member from `.cache`, trained anew when the data or the training code changed."""
    digest = xxhash.xxh3_64()
    for source in sources:
        digest.update(Path(str(source.__file__)).read_bytes())
    digest.update(msgspec.json.encode(rows))
    folder = CACHE / "members"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{digest.hexdigest()}.npz"
    if path.is_file():
        with np.load(path) as kept:
            scores = {split: kept[split] for split in SPLITS}
            known = msgspec.json.decode(bytes(kept["known"]), type=_Known)
        return Member(known.name, known.cost, known.latency_s, scores, known.card)
    tell(f"training {name} ...")
    member = make()
    known = _Known(member.name, member.cost, member.latency_s, member.card)
    arrays: dict[str, Any] = {**member.scores, "known": np.frombuffer(msgspec.json.encode(known), dtype=np.uint8)}
    np.savez(path, **arrays)
    return member


class _Known(msgspec.Struct, frozen=True):
    name: str
    cost: float
    latency_s: float
    card: TrainingCard
