"""What one policy served on the rows all policies are compared on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rheostat.lab.metrics import Floats
from rheostat.lab.outcomes import Bools, Ints, ModelColumns, OutcomesTable, Scores
from rheostat.lab.replay import ReplayResult
from rheostat.lab.segments import coded, meta_values


@dataclass(frozen=True)
class Traffic:
    """The rows all policies are compared on; what their meta fields say is read once."""

    table: OutcomesTable
    _values: dict[str, list[Any]] = field(default_factory=dict)
    _codes: dict[str, Ints] = field(default_factory=dict)

    def values(self, name: str) -> list[Any]:
        """Return each row's value of one meta field, None where it has none."""
        if name not in self._values:
            self._values[name] = meta_values(self.table, name)
        return self._values[name]

    def codes(self, name: str) -> Ints:
        """Return a code per row that is equal where the meta field is equal; -1 where a row has no value."""
        if name not in self._codes:
            self._codes[name] = coded(self.values(name))
        return self._codes[name]


@dataclass(frozen=True)
class Served:
    """One policy's answers, a value per row of the traffic; the part of a replay that figures need, and no more.

    Args:
        label: code into the table's labels, or beyond them for a label that no model ever said.
        confidence: of the answer, NaN where it has none.
        weights: rows x models, 0 everywhere where a preset answered.
        called: rows x models.
    """

    traffic: Traffic
    label: Ints
    confidence: Floats
    weights: Scores
    called: Bools
    cost: Floats
    latency_s: Floats
    extra_labels: tuple[str, ...] = ()

    @classmethod
    def of(cls, played: ReplayResult, traffic: Traffic) -> Served:
        """Keep the figures of a replay over the traffic; its reasons and errors are let go."""
        return cls(
            traffic, played.label, played.confidence, played.weights, played.called, played.cost, played.latency_s,
            played.extra_labels,
        )  # fmt: skip

    def take(self, traffic: Traffic, rows: npt.NDArray[Any]) -> Served:
        """Return some rows; `traffic` is that of just these rows."""
        return Served(
            traffic, self.label[rows], self.confidence[rows], self.weights[rows], self.called[rows], self.cost[rows],
            self.latency_s[rows], self.extra_labels,
        )  # fmt: skip

    @property
    def table(self) -> OutcomesTable:
        """The rows that were served."""
        return self.traffic.table

    @property
    def correct(self) -> Bools:
        """Rows answered rightly."""
        right: Bools = self.label == self.table.truth
        return right

    def probability(self, codes: Ints) -> Floats:
        """Return the probability that the served mix gave to one label a row: the weighted mean of the models'.

        A model without a distribution gives its confidence to its own label and spreads the rest evenly over the others.

        Args:
            codes: a label code per row.

        Raises:
            ValueError: a model that counts has neither scores nor a confidence on some row.
        """
        total = self.weights.sum(axis=1, dtype=np.float64)
        mix = np.zeros(len(codes))
        for at, name in enumerate(self.table.models):
            weight = self.weights[:, at].astype(np.float64)
            if not weight.any():
                continue
            said = _said(self.table.model(name), codes, len(self.table.labels))
            if (lacking := np.isnan(said) & (weight > 0.0)).any():
                raise ValueError(
                    f"{name} has neither scores nor a confidence on {int(lacking.sum())} rows; this metric needs the "
                    "models' probabilities: use accuracy or a reward, or let the model give a confidence"
                )
            mix += np.where(weight > 0.0, weight * np.nan_to_num(said), 0.0)
        preset = np.where(self.label == codes, np.where(np.isnan(self.confidence), 1.0, self.confidence), 0.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(total > 0.0, mix / total, preset)


def _said(columns: ModelColumns, codes: Ints, labels: int) -> Floats:
    """One model's probability of one label a row; NaN where it says nothing about it."""
    own = columns.label == codes
    bare = np.where(own, columns.confidence, (1.0 - columns.confidence) / max(labels - 1, 1))
    if columns.scores is None or not columns.scores.shape[1]:
        return bare
    given = columns.scores[np.arange(len(codes)), np.minimum(codes, columns.scores.shape[1] - 1)].astype(np.float64)
    return np.where(np.isnan(given), bare, given)
