"""The layer before the mix: every model's scores made to mean what they say there, by the calibrators that are served."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from rheostat.lab.calibration import fit_calibrator
from rheostat.lab.metrics import Floats
from rheostat.lab.outcomes import ModelColumns, OutcomesTable
from rheostat.lab.weights.fusion import FusionData, fixed_blend, losses, mixed
from rheostat.lab.weights.rows import distributions, fusion_data
from rheostat.signals.calibrator import Calibrator, Fitted, Identity, Temperature

_ROWS: Final = 20_000  # as many are enough for one temperature a model
_TIE: Final = 1e-4  # nats of the mix that a calibration must win to be kept
_SPREAD: Final = 1.5  # temperatures lie within e to this power of 1


def calibrated_for(parts: Sequence[OutcomesTable], models: Sequence[str]) -> tuple[dict[str, Fitted], list[OutcomesTable]]:
    """Calibrate the models that are not yet, as is best for their mix, and return all tables with calibrated answers.

    Three ways are fitted on the first table: leaving alone, each model by itself (`choose_calibrator`), and one temperature
    a model fitted through the mix. The one whose fixed blend has the lowest log loss on the second table is taken; what
    wins less than 0.0001 nats is left out. A mix of well calibrated models that know different things is not sure enough
    of itself, which only the third way can see. Source: Ranjan and Gneiting, Combining probability forecasts (2010).
    """
    free = [name for name in models if not parts[0].model_info[name].calibrated]
    found: dict[str, Fitted] = {}
    least = _blended(parts[0], parts[1], models)
    for way in (_each(parts[0], free), _through(parts[0], models, free)):
        loss = _blended(_applied(parts[0], way), _applied(parts[1], way), models) if way else np.inf
        if loss < least - _TIE:
            found, least = way, loss
    return found, [_applied(part, found) for part in parts]


def through_mix(data: FusionData, free: Sequence[bool]) -> Floats:
    """Return a temperature per model, fitted together with fixed weights on the log loss of the mix; 1 where not free."""
    from scipy.optimize import minimize

    some = np.unique(np.linspace(0, len(data.truth) - 1, min(len(data.truth), _ROWS)).astype(int))
    logs, truth = np.log(np.clip(data.scores[some], 1e-7, 1.0)), data.truth[some]
    models, loose = logs.shape[1], np.asarray(free, dtype=bool)

    def temperatures(flat: Floats) -> Floats:
        found = np.ones(models)
        found[loose] = np.exp(flat[models:])
        return found

    def loss(flat: Floats) -> float:
        weights = np.exp(flat[:models] - flat[:models].max())
        return float(losses(mixed(_tempered(logs, temperatures(flat)), weights / weights.sum()), truth).mean())

    start = np.concatenate([np.log(np.clip(fixed_blend(data), 1e-3, 1.0)), np.zeros(int(loose.sum()))])
    bounds = [(-10.0, 10.0)] * models + [(-_SPREAD, _SPREAD)] * int(loose.sum())
    return temperatures(minimize(loss, start, method="L-BFGS-B", bounds=bounds, options={"maxiter": 50}).x)


def _tempered(logs: Floats, temperature: Floats) -> Floats:
    odds = logs / temperature[None, :, None]
    powers = np.exp(odds - odds.max(axis=2, keepdims=True))
    found: Floats = powers / powers.sum(axis=2, keepdims=True)
    return found


def _through(fit: OutcomesTable, models: Sequence[str], free: Sequence[str]) -> dict[str, Fitted]:
    scored = [name for name in free if fit.model(name).scores is not None]
    if not scored:
        return {}
    found = through_mix(_data(fit, models), [name in scored for name in models])
    pairs = zip(models, found.tolist(), strict=True)
    return {name: Temperature(t=t, samples=len(fit)) for name, t in pairs if name in scored}


def _each(fit: OutcomesTable, free: Sequence[str]) -> dict[str, Fitted]:
    found: dict[str, Fitted] = {}
    for name in free:
        try:
            fitted, _ = fit_calibrator(fit, name)
        except ValueError:  # no confidence at all, or always right: nothing to calibrate by
            continue
        if not isinstance(fitted, Identity):
            found[name] = fitted
    return found


def _blended(fit: OutcomesTable, fresh: OutcomesTable, models: Sequence[str]) -> float:
    weights = fixed_blend(_data(fit, models))
    return float(losses(mixed(distributions(fresh, models), weights), fresh.truth.astype(np.int64)).mean())


def _data(table: OutcomesTable, models: Sequence[str]) -> FusionData:
    return fusion_data(table, np.zeros((len(table), 0)), distributions(table, models))


def _applied(table: OutcomesTable, calibrators: Mapping[str, Fitted]) -> OutcomesTable:
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
