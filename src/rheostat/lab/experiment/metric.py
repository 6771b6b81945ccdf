"""What an experiment measures: a number per row of what was served, and a mean over rows or users of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol

import numpy as np
from msgspec import Struct

from rheostat.lab.experiment.ranking import Auc, TopK
from rheostat.lab.experiment.served import Served, Traffic
from rheostat.lab.experiment.unit import Rows, Units
from rheostat.lab.metrics import Floats, floats

FLOOR: Final = 1e-7
"""Log loss counts a probability below this as this: models' scores are kept as 32-bit numbers."""


class Metric(Protocol):
    """A way to judge what was served. `name` is for people; `percent` says how it is written."""

    @property
    def name(self) -> str: ...
    @property
    def lower_is_better(self) -> bool: ...
    @property
    def percent(self) -> bool: ...

    def raw(self, served: Served) -> Floats:
        """Return one number per row of what a policy served.

        Raises:
            ValueError: the table lacks what the metric needs; the message says what.
        """

    def units(self, raw: Floats, rows: Rows, traffic: Traffic) -> Units:
        """Return the units among `rows`, from the numbers of all rows.

        Raises:
            ValueError: these rows do not allow it (one class only, no unit left); the message says why.
        """


class _Mean(Struct, frozen=True):
    """A metric whose units are rows."""

    def units(self, raw: Floats, rows: Rows, traffic: Traffic) -> Units:  # noqa: ARG002
        return Units(floats(raw[rows], "values"), rows)


class Accuracy(_Mean, frozen=True):
    """The share of rows answered with the right label."""

    name = "accuracy"
    lower_is_better = False
    percent = True

    def raw(self, served: Served) -> Floats:
        return served.correct.astype(np.float64)


class LogLoss(_Mean, frozen=True):
    """The mean of -ln(probability the served mix gave to the right label); 0 is perfect, lower is better.

    Probabilities below 1e-7 count as 1e-7.
    """

    name = "log loss"
    lower_is_better = True
    percent = False

    def raw(self, served: Served) -> Floats:
        given: Floats = -np.log(np.clip(served.probability(served.table.truth), FLOOR, 1.0))
        return given


class Reward(_Mean, frozen=True):
    """The mean reward of the served label (conversion, revenue, clicks): a meta field says what it earns.

    The field holds a number, earned when the right label is served (else 0), or a mapping from label to what serving that
    label earns (labels that are not in it earn 0).
    """

    field: str

    lower_is_better = False
    percent = False

    @property
    def name(self) -> str:
        return f"mean {self.field.removeprefix('meta.')}"

    def raw(self, served: Served) -> Floats:
        values = served.traffic.values(self.field)
        labels = (*served.table.labels, *served.extra_labels)
        said = [labels[code] for code in served.label.tolist()]
        right = served.correct.tolist()
        earned = [_earned(*each, self.field) for each in zip(values, said, right, strict=True)]
        return np.array(earned, dtype=np.float64)


def _earned(value: Any, label: str, right: bool, field: str) -> float:
    if isinstance(value, dict):
        value = value.get(label, 0.0)
    elif not right:
        return 0.0
    if isinstance(value, str):  # as a CSV file has it
        with suppress(ValueError):
            value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        name = field.removeprefix("meta.")
        raise ValueError(f"meta.{name}: expected a number, or a mapping of label to number, got {value!r}")
    return float(value)


class Custom(_Mean, frozen=True):
    """Your own metric: `function` gives one finite number per row of what was served."""

    name: str
    function: Callable[[Served], Floats]
    lower_is_better: bool = False
    percent: bool = False

    def raw(self, served: Served) -> Floats:
        return np.asarray(self.function(served), dtype=np.float64)


def parse_metric(text: str, *, positive: str = "", by: str = "") -> Metric:
    """Return the metric that is written `accuracy`, `log-loss`, `auc`, `top@K` or `reward:meta.FIELD`.

    Args:
        positive: the label that counts as a hit (`auc`, `top@K`).
        by: the meta field whose rows are ranked together (`top@K`).

    Raises:
        ValueError: it is none of these; the message lists them.
    """
    head, _, rest = text.partition(":")
    if head == "reward" and rest:
        return Reward(rest)
    if text == "accuracy":
        return Accuracy()
    if text == "log-loss":
        return LogLoss()
    if text == "auc":
        return Auc(positive)
    name, at, k = text.partition("@")
    if name == "top" and at and k.isdecimal():
        if not positive:
            raise ValueError(f"{text} needs the label that counts as a hit (positive)")
        return TopK(int(k), by, positive)
    raise ValueError(f"unknown metric {text!r}; known: accuracy, log-loss, auc, top@K, reward:meta.FIELD")
