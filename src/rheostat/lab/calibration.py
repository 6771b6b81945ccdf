"""A calibrator fitted on one split of an outcomes table and judged on another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from msgspec import Struct

from rheostat.errors import RheostatError
from rheostat.lab.judged import judged_answers
from rheostat.lab.outcomes import Bools, OutcomesTable
from rheostat.lab.reliability import brier, ece
from rheostat.signals.calibrate import choose_calibrator, fit_isotonic, fit_platt, fit_quantile, fit_temperature
from rheostat.signals.calibrator import Fitted

METHODS: Final = ("auto", "platt", "isotonic", "temperature", "quantile")
_FITS: Final[Mapping[str, Callable[..., Fitted]]] = {
    "auto": choose_calibrator, "platt": fit_platt, "isotonic": fit_isotonic, "temperature": fit_temperature,
}  # fmt: skip


class CalibrationError(RheostatError):
    """No calibrator can be fitted from this; the message says why and what to do."""

    type = "calibration_error"


class Calibration(Struct, frozen=True, kw_only=True):
    """A fitted calibrator and the model's errors of confidence on the split that reports, before and after.

    `ece` is the expected calibration error over 15 bins of equal width, `brier` the mean squared error; both in [0, 1].
    """

    fitted: Fitted
    model: str
    fitted_on: int
    reported_on: int
    ece_before: float
    ece_after: float
    brier_before: float
    brier_after: float


def calibrate(
    table: OutcomesTable, model: str, method: str = "auto", *, choose: str = "dev", report: str = "test"
) -> Calibration:
    """Fit a calibrator for `model` on the split `choose` and judge it on `report`.

    `auto` takes what has the lowest cross-validated log loss of identity, Platt, isotonic and temperature. `quantile` maps
    onto the scale of the table's last model. Rows without an answer, a confidence or a known right label are left out.

    Raises:
        CalibrationError: an unknown model or method, a model that was calibrated already, or too little data.
    """
    if model not in table.models:
        raise CalibrationError(f"the table has no model {model!r}; it has {', '.join(table.models)}")
    if method not in METHODS:
        raise CalibrationError(f"unknown method {method!r}; known: {', '.join(METHODS)}")
    if table.model_info[model].calibrated:
        raise CalibrationError(
            f"{model} was calibrated when it was evaluated; remove `calibration` from its settings and evaluate again"
        )
    chosen, held_out = table.select(split=choose), table.select(split=report)
    try:
        fitted, count = fit_calibrator(chosen, model, method)
    except ValueError as error:
        raise CalibrationError(f"{model} on {choose}: {error}") from None
    rows = _rows(held_out, model)
    if not rows.any():
        raise CalibrationError(f"{model} on {report}: no row with a known label, an answer and a confidence to judge it on")
    before, right = held_out.model(model).confidence[rows], held_out.correct(model)[rows]
    after = np.array([_applied(fitted, held_out, model, row) for row in np.flatnonzero(rows).tolist()])
    return Calibration(
        fitted=fitted,
        model=model,
        fitted_on=count,
        reported_on=len(before),
        ece_before=ece(before, right),
        ece_after=ece(after, right),
        brier_before=brier(before, right),
        brier_after=brier(after, right),
    )


def calibrate_judged(path: str, model: str, method: str = "auto") -> Calibration:
    """Fit a calibrator for `model` on answers that it gave alone while serving and that were judged since.

    It is fitted on seven of ten and judged on the rest. What the model was not sure enough of, and others answered, is
    not among them, so it holds for the confidences from the threshold up; serve some requests with a threshold of 0, or
    with `route.force_model`, to see all. The model must have been served without `calibration`.

    Raises:
        CalibrationError: an unknown method or one that needs a table, or too little data.
        StoreError, OSError: the file cannot be read.
    """
    if method not in _FITS:
        raise CalibrationError(f"from records the method is one of {', '.join(_FITS)}, not {method!r}")
    found = judged_answers(path, model)
    fit, rest = found.fit, ~found.fit
    if not rest.any():
        told = f"{len(found.right)} judged answers with a confidence; give feedback with a `reward` of 0 or 1"
        raise CalibrationError(f"{model} in {path}: too little to fit on and to judge by ({told})")
    try:
        fitted = _FITS[method](found.confidence[fit], found.right[fit])
    except ValueError as error:
        raise CalibrationError(f"{model} in {path}: {error}") from None
    before, right = found.confidence[rest], found.right[rest]
    after = np.array([fitted.value(each) for each in before.tolist()])
    return Calibration(
        fitted=fitted, model=model, fitted_on=int(fit.sum()), reported_on=len(before), ece_before=ece(before, right),
        ece_after=ece(after, right), brier_before=brier(before, right), brier_after=brier(after, right),
    )  # fmt: skip


def fit_calibrator(table: OutcomesTable, model: str, method: str = "auto") -> tuple[Fitted, int]:
    """Fit one model's calibrator on all rows of a table that can be judged, and return it with their number.

    Raises:
        ValueError: too little data, or all of one kind; the message says which.
    """
    columns, rows = table.model(model), _rows(table, model)
    correct = table.correct(model)[rows]
    if method == "quantile":
        last = table.models[-1]
        if last == model:
            raise ValueError("quantile mapping needs another model to map onto, and this is the last one")
        reference = table.model(last).confidence[_rows(table, last)]
        return fit_quantile(columns.confidence[rows], correct, reference), len(correct)
    whole = columns.scores is not None and bool(np.isfinite(columns.scores[rows]).all())
    given = columns.scores[rows] if whole and columns.scores is not None else columns.confidence[rows]
    return _FITS[method](given, correct), len(correct)


def _rows(table: OutcomesTable, model: str) -> Bools:
    """The rows that can be judged: an answer, a confidence, and the right label known."""
    return table.answered(model) & table.known & np.isfinite(table.model(model).confidence)


def _applied(fitted: Fitted, table: OutcomesTable, model: str, row: int) -> float:
    outcome = table.outcome(model, row)
    prediction = outcome.prediction if outcome is not None else None
    confidence = fitted.apply(prediction).confidence if prediction is not None else None
    return confidence if confidence is not None else float("nan")
