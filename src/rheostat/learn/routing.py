"""Routes the rows of one call through a policy and asks a member only about the rows that need it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from rheostat.lab.outcomes import ABSENT, OK, Bools, Floats, ModelColumns, ModelInfo, OutcomesTable
from rheostat.lab.replay import ReplayResult, replay, unrecorded
from rheostat.policies import Policy
from rheostat.types import Request

_DEV: Final = 1

Ask = Callable[[str, Any], Floats]
"""Takes a member's name and the rows it is asked about (their numbers); returns one line of values a row: the scores of
all labels, or the one value of a regressor."""


@dataclass(frozen=True)
class Routed:
    """What became of every row.

    Args:
        members: names, in the order of the columns below.
        weights: rows x members, how much each member's answer counts; rows sum to 1.
        called: rows x members, who was asked.
        cost: one number a row, the cost of all calls made for it.
        values: rows x labels (or x 1 for a regressor), the members' values mixed by the weights.
    """

    members: tuple[str, ...]
    weights: Floats
    called: Bools
    cost: Floats
    values: Floats

    @property
    def call_share(self) -> dict[str, float]:
        """The share of the rows, in [0, 1], about which each member was asked."""
        return {name: float(self.called[:, at].mean()) for at, name in enumerate(self.members)}


class GivenSignal:
    """A signal that is known for every row beforehand, by the row's id."""

    def __init__(self, name: str, values: Mapping[str, float]) -> None:
        self.names: tuple[str, ...] = (name,)
        self._name, self._values = name, values

    def score(self, request: Request) -> Mapping[str, float]:
        """Return the row's value."""
        return {self._name: self._values[request.id]}


def table_of(
    values: Mapping[str, Floats | None],
    costs: Mapping[str, float],
    rows: int,
    labels: tuple[str, ...],
    truth: Any = None,
) -> OutcomesTable:
    """Return a table of members' scores; a member without any is unrecorded on every row.

    Args:
        values: member -> rows x labels, or None.
        labels: the labels' names; with a single one (a regressor) only who was asked matters.
        truth: the rows' label codes; unknown when None.
    """
    return OutcomesTable(
        ids=np.array([str(row) for row in range(rows)], dtype=object),
        split=np.full(rows, _DEV, dtype=np.int8),
        truth=np.full(rows, -1, dtype=np.int32) if truth is None else np.asarray(truth, dtype=np.int32),
        labels=labels,
        columns={name: _columns(found, costs[name], rows, len(labels)) for name, found in values.items()},
        model_info={name: ModelInfo(cost=costs[name], tier=tier) for tier, name in enumerate(values)},
    )


def _columns(scores: Floats | None, cost: float, rows: int, labels: int) -> ModelColumns:
    found = np.zeros((rows, labels)) if scores is None else scores
    return ModelColumns(
        label=found.argmax(axis=1).astype(np.int32),
        confidence=found.max(axis=1),
        latency_s=np.zeros(rows),
        cost=np.full(rows, cost),
        failure=np.full(rows, ABSENT if scores is None else OK, dtype=np.int8),
        scores=found.astype(np.float32),
    )


def route(
    policy: Policy,
    ask: Ask,
    costs: Mapping[str, float],
    rows: int,
    labels: tuple[str, ...],
    signals: Sequence[GivenSignal] = (),
) -> Routed:
    """Replay `policy` over rows nobody has answered yet, fill in what it asks for, and replay those rows again.

    Every pass asks each member at most once, about all rows that need it together; there are at most as many passes as
    members and one more.

    Args:
        ask: hears the member and the rows' numbers.
        costs: of one call, by member; its order is the order of the members.
    """
    names = tuple(costs)
    table = table_of(dict.fromkeys(names), costs, rows, labels)
    values: dict[str, Floats] = {}
    weights, cost = np.zeros((rows, len(names))), np.zeros(rows)
    called = np.zeros((rows, len(names)), dtype=bool)
    open_rows = np.arange(rows)
    while len(open_rows):
        played = replay(policy, table.subset(open_rows), scorers=signals)
        done = played.label >= 0
        _refuse_failures(played, names)
        ended = open_rows[done]
        weights[ended], called[ended], cost[ended] = played.weights[done], played.called[done], played.cost[done]
        columns = dict(table.columns)
        for name in names:
            asked = open_rows[played.error == unrecorded(name)]
            if len(asked):
                found = ask(name, asked)
                filled = values.setdefault(name, np.zeros((rows, found.shape[1])))
                filled[asked] = found
                columns[name] = _recorded(columns[name], asked, found, len(labels))
        table = replace(table, columns=columns)
        open_rows = open_rows[~done]
    width = max((found.shape[1] for found in values.values()), default=1)
    mixed = np.zeros((rows, width))
    for at, name in enumerate(names):
        if name in values:
            mixed += weights[:, at : at + 1] * values[name]
    return Routed(names, weights, called, cost, mixed)


def _refuse_failures(played: ReplayResult, names: Sequence[str]) -> None:
    waiting = np.isin(played.error, [unrecorded(name) for name in names])
    count, said = played.failed
    if count or not ((played.label >= 0) | waiting).all():
        raise ValueError(f"the policy failed on {max(count, 1)} rows: {said or 'it gave no answer'}")


def _recorded(columns: ModelColumns, rows: Any, found: Floats, labels: int) -> ModelColumns:
    """The member's columns with what it has just said; of a regressor only that it answered."""
    scores = found if labels > 1 else np.ones((len(rows), 1))
    label, confidence, failure = columns.label.copy(), columns.confidence.copy(), columns.failure.copy()
    label[rows], confidence[rows], failure[rows] = scores.argmax(axis=1), scores.max(axis=1), OK
    kept = columns.scores
    if kept is not None:
        kept = kept.copy()
        kept[rows] = scores
    return ModelColumns(label, confidence, columns.latency_s, columns.cost, failure, kept)
