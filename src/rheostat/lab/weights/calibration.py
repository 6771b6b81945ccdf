"""The layer before the mix: every model's scores made to mean what they say, by the calibrators that are served."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rheostat.lab.calibration import fit_calibrator
from rheostat.lab.outcomes import ModelColumns, OutcomesTable
from rheostat.lab.weights.fusion import losses
from rheostat.lab.weights.rows import distributions
from rheostat.signals.calibrator import Calibrator, Fitted, Identity


def calibrated_for(parts: Sequence[OutcomesTable], models: Sequence[str]) -> tuple[dict[str, Fitted], list[OutcomesTable]]:
    """Fit a calibrator on the first table for every model that has none, and return all tables with calibrated answers.

    The method is chosen by cross-validation (`choose_calibrator`). A calibrator is kept only where it lowers the model's log
    loss on the second table too: answers out of fold come from siblings of the model that is served, which may be less
    sure than it is.
    """
    found: dict[str, Fitted] = {}
    for name in models:
        if parts[0].model_info[name].calibrated:
            continue
        try:
            fitted, _ = fit_calibrator(parts[0], name)
        except ValueError:  # no confidence at all, or always right: nothing to calibrate by
            continue
        if not isinstance(fitted, Identity) and _loss(_applied(parts[1], {name: fitted}), name) < _loss(parts[1], name):
            found[name] = fitted
    return found, [_applied(part, found) for part in parts]


def _loss(table: OutcomesTable, name: str) -> float:
    return float(losses(distributions(table, (name,))[:, 0], table.truth.astype(np.int64)).mean())


def _applied(table: OutcomesTable, calibrators: dict[str, Fitted]) -> OutcomesTable:
    columns = dict(table.columns)
    for name, calibrator in calibrators.items():
        columns[name] = _column(table, name, calibrator)
    return replace(table, columns=columns)


def _column(table: OutcomesTable, name: str, calibrator: Calibrator) -> ModelColumns:
    held = table.model(name)
    confidence = held.confidence.copy()
    scores = None if held.scores is None else held.scores.copy()
    for row in range(len(table)):
        outcome = table.outcome(name, row)
        if outcome is None or outcome.prediction is None or np.isnan(confidence[row]):
            continue
        made = calibrator.apply(outcome.prediction)
        confidence[row] = made.confidence if made.confidence is not None else np.nan
        if scores is not None and made.scores is not None:
            scores[row] = [made.scores[label] for label in table.labels]
    return replace(held, confidence=confidence, scores=scores)
