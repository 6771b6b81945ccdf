"""From an outcomes table to what weights learn from: the numbers that are served, the models' scores, the right labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from rheostat.errors import ConfigError
from rheostat.lab.metrics import Floats
from rheostat.lab.outcomes import ModelColumns, OutcomesTable
from rheostat.lab.segments import coded, meta_values
from rheostat.lab.weights.fusion import FusionData, losses
from rheostat.lab.weights.past import earlier_mean
from rheostat.signals.answer_line import AnswerLine, Past, key_of, plain_name

ANSWERS = ("all", "first", "none")
PAST_KEYS = 50_000
"""At most so many values of a meta field are remembered in a file, those with most rows."""
STRENGTH = 10.0


def answer_features(models: Sequence[str], labels: Sequence[str], answers: str, past: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the numbers that weights over `models` may read of answers and earlier rows.

    Args:
        answers: `all` models' answers, the `first` one's only (the others can then be saved), or `none`.
        past: meta fields, such as the user, by which the models' earlier losses are remembered.

    Raises:
        ValueError: an unknown choice, or a model's name that cannot be written in a feature's.
    """
    if answers not in ANSWERS:
        raise ValueError(f"answers: expected one of {', '.join(ANSWERS)}, got {answers!r}")
    if wrong := [model for model in models if not plain_name(model)]:
        raise ValueError(f"the name {wrong[0]!r} cannot stand in a feature's: use none of , ( ) = ;")
    read = {"all": tuple(models), "first": tuple(models[:1]), "none": ()}[answers]
    names: list[str] = []
    for at, model in enumerate(read):
        names += [f"confidence({model})", f"margin({model})", f"entropy({model})"]
        names += [f"odds({model}={labels[1]})"] if len(labels) == 2 else []
        for other in read[at + 1 :]:
            names += [f"gap({model},{other})", f"agree({model},{other})", f"distance({model},{other})"]
            names += [f"gap({model},{other}={labels[1]})"] if len(labels) == 2 else []
    names += [f"past({model};{field.removeprefix('meta.')})" for field in past for model in models]
    return tuple(names)


def distributions(table: OutcomesTable, models: Sequence[str]) -> Floats:
    """Return rows x models x labels: what each model said; the rows must be complete.

    A model without scores gives its confidence to its label and spreads the rest evenly over the others.

    Raises:
        ValueError: a model has neither on some row; the message says how many.
    """
    parts = []
    for name in models:
        columns, labels = table.model(name), len(table.labels)
        said = _bare(columns, labels)
        if columns.scores is not None and columns.scores.shape[1]:
            scores = columns.scores.astype(np.float64)
            said = np.where(np.isnan(scores[:, :1]), said, scores / np.maximum(scores.sum(axis=1, keepdims=True), 1e-12))
        if lacking := int(np.isnan(said).any(axis=1).sum()):
            raise ValueError(f"{name} gave neither scores nor a confidence on {lacking} rows: there is nothing to weigh")
        parts.append(said)
    return np.stack(parts, axis=1)


def read_rows(table: OutcomesTable, line: AnswerLine) -> Floats:
    """Return rows x numbers, read by the very code that reads them when served."""
    found = np.empty((len(table), len(line.names)))
    for row in range(len(table)):
        said = ((name, table.outcome(name, row)) for name in line.needs)
        found[row] = line.read(table.request(row), {name: outcome for name, outcome in said if outcome is not None})
    return found


def past_of(table: OutcomesTable, models: Sequence[str], scores: Floats, fields: Sequence[str]) -> dict[str, Past]:
    """Return the models' mean log loss by the values of each field, drawn to the overall mean with a strength of 10 rows."""
    loss = _loss(table, scores)
    prior = loss.mean(axis=0)
    found: dict[str, Past] = {}
    for field in fields:
        name = field.removeprefix("meta.")
        keys = [key_of(value) for value in meta_values(table, name)]
        codes = coded(keys)
        counts = np.bincount(codes[codes >= 0])
        sums = np.stack([np.bincount(codes[codes >= 0], loss[codes >= 0, at]) for at in range(len(models))], axis=1)
        means = (sums + STRENGTH * prior) / (counts + STRENGTH)[:, None]
        known = list(dict.fromkeys(key for key in keys if key is not None))
        often = np.argsort(-counts, kind="stable")[:PAST_KEYS].tolist()
        found[name] = Past(
            models=tuple(models),
            keys={known[code]: tuple(means[code].tolist()) for code in often},
            otherwise=tuple(prior.tolist()),
        )
    return found


def as_it_was(
    x: Floats, table: OutcomesTable, names: Sequence[str], models: Sequence[str], scores: Floats, when: str
) -> Floats:
    """Return the numbers of the rows that weights are fitted on, with pasts that know strictly earlier rows only.

    A row's own loss in its past would tell the weights which model is right on it.

    Args:
        when: the meta field that orders the rows in time; empty: the order of the table.

    Raises:
        ValueError: a row has no time.
    """
    times: npt.NDArray[np.float64] = np.arange(len(table), dtype=np.float64)
    if when:
        told = meta_values(table, when)
        if not all(isinstance(value, int | float) for value in told):
            raise ValueError(f"{when} must be a number on every row to order them in time")
        times = np.array(told, dtype=np.float64)
    loss, found = _loss(table, scores), x.copy()
    for at, name in enumerate(names):
        if not name.startswith("past("):
            continue
        model, _, field = name[5:-1].partition(";")
        keys = [key_of(value) or f"\x00{row}" for row, value in enumerate(meta_values(table, field))]
        values = loss[:, list(models).index(model)]
        found[:, at] = earlier_mean(keys, values, times, float(values.mean()), STRENGTH)
    return found


def fusion_data(table: OutcomesTable, x: Floats, scores: Floats) -> FusionData:
    """Put together what weights are fitted or judged on; every row's right label must be known."""
    return FusionData(x, scores, table.truth.astype(np.int64))


def line_of(names: Sequence[str], past: Mapping[str, Past]) -> AnswerLine:
    """Return the reader of these numbers.

    Raises:
        ValueError: a name is none of those there are; the message says which is near.
    """
    try:
        return AnswerLine(names, past)
    except ConfigError as error:
        raise ValueError("; ".join(problem.message for problem in error.problems)) from None


def _bare(columns: ModelColumns, labels: int) -> Floats:
    n = len(columns.label)
    said = np.repeat(((1.0 - columns.confidence) / max(labels - 1, 1))[:, None], labels, axis=1)
    said[np.arange(n), np.maximum(columns.label, 0)] = columns.confidence
    return said


def _loss(table: OutcomesTable, scores: Floats) -> Floats:
    truth = table.truth.astype(np.int64)
    return np.stack([losses(scores[:, at], truth) for at in range(scores.shape[1])], axis=1)
