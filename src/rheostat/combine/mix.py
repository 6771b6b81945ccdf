"""Pick one answer or mix several."""

from __future__ import annotations

from collections.abc import Mapping

from rheostat.types import Outcome, Prediction


def combine(weights: Mapping[str, float], outcomes: tuple[Outcome, ...]) -> Prediction | None:
    """Combine the predictions of the models in `weights` (non-negative, normalised here to sum 1).

    One model: its prediction as it is. Several: the weighted mean of their score distributions (the linear opinion pool);
    a model without a distribution puts its confidence (1 when it has none) on its label. Models without a prediction are
    left out and the rest counts in proportion. Returns None when nothing is left.
    """
    if len(weights) == 1:
        (model,) = weights
        for outcome in outcomes:
            if outcome.model == model:
                return outcome.prediction
        return None
    parts = [
        (weight, outcome.prediction)
        for outcome in outcomes
        if outcome.prediction is not None and (weight := weights.get(outcome.model, 0.0)) > 0.0
    ]
    total = sum(weight for weight, _ in parts)
    if not parts or total <= 0.0:
        return None
    scores: dict[str, float] = {}
    for weight, prediction in parts:
        share = weight / total
        if prediction.scores is not None:
            for label, score in prediction.scores.items():
                scores[label] = scores.get(label, 0.0) + share * score
        else:
            confidence = 1.0 if prediction.confidence is None else prediction.confidence
            scores[prediction.label] = scores.get(prediction.label, 0.0) + share * confidence
    return Prediction.from_scores(scores)
