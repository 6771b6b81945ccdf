"""Whatever a model returned, turned into a prediction that keeps the contract, or a reason why it is none."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rheostat.errors import ModelError
from rheostat.types import Prediction, usable_confidence

SUM_TOLERANCE = 1e-3
_FIELDS = frozenset({"label", "confidence", "scores", "output"})
_ROUNDING = 1e-6
_SHOWN = 80
_PLAIN = frozenset({str, float, int, bool, type(None)})


def as_reply(raw: Any, labels: Sequence[str] | None = None) -> Prediction | ModelError:
    """Read one row's answer.

    Args:
        raw: a label; `(label, confidence)`; a mapping of scores by label; a mapping with `label` and, if wanted,
            `confidence`, `scores`, `output`; a Prediction; or a ModelError, which is handed back.
        labels: the declared label set, or None when the model declares none.

    Returns:
        A Prediction whose label is declared, whose confidence is in [0, 1] or None, and whose scores are finite, sum
        to 1 within 0.001 and have their maximum at the label; otherwise ModelError("bad_output") with what was
        expected.
    """
    kind = type(raw)
    if kind is tuple and len(raw) == 2:  # the commonest answer first: this is on the request path
        return _reply(raw[0], raw[1], None, None, labels)
    if kind is not dict and isinstance(raw, ModelError):
        return raw
    if kind is Prediction:
        return _reply(raw.label, raw.confidence, raw.scores, raw.output, labels)
    if kind is not dict and isinstance(raw, tuple | list) and len(raw) == 2:
        return _reply(raw[0], raw[1], None, None, labels)
    if kind is dict or isinstance(raw, Mapping):
        if "label" in raw and _FIELDS.issuperset(raw) and plain(raw["label"]).__class__ is not float:
            return _reply(raw["label"], raw.get("confidence"), raw.get("scores"), raw.get("output"), labels)
        return _reply(None, None, raw, None, labels)
    return _reply(raw, None, None, None, labels)


def plain(value: Any) -> Any:
    """Return a NumPy scalar as the Python value it holds; anything else as it is."""
    if type(value) in _PLAIN:
        return value
    return value.item() if hasattr(value, "dtype") and getattr(value, "ndim", 1) == 0 else value


def bad_output(expected: str, got: Any) -> ModelError:
    """Say what was expected of the model and what came, cut to a readable length."""
    shown = repr(got)
    return ModelError("bad_output", f"expected {expected}, got {shown[:_SHOWN] + '...' if len(shown) > _SHOWN else shown}")


def _reply(label: Any, confidence: Any, scores: Any, output: Any, labels: Sequence[str] | None) -> Prediction | ModelError:
    distribution: dict[str, float] | None = None
    if scores is not None:
        checked = _distribution(scores, labels)
        if isinstance(checked, ModelError):
            return checked
        distribution = checked
    if label is None and distribution is not None:
        label = max(distribution, key=distribution.__getitem__)
    name = _label(label)
    if name is None:
        return bad_output("a label (non-empty text)", label)
    if labels and name not in labels:
        return bad_output(f"one of the labels {list(labels)}", name)
    own = usable_confidence(plain(confidence))
    spoilt = own is None and confidence is not None
    if distribution is None:
        return Prediction(name, own, None, output, spoilt)
    if distribution.get(name, 0.0) < max(distribution.values()) - _ROUNDING:
        return bad_output(f"scores with their maximum at the label {name!r}", distribution)
    return Prediction(name, distribution[name] if confidence is None else own, distribution, output, spoilt)


def _label(value: Any) -> str | None:
    value = plain(value)
    if isinstance(value, str):
        return value if value.strip() else None
    if isinstance(value, bool | int):
        return str(value)
    return None


def _distribution(scores: Any, labels: Sequence[str] | None) -> dict[str, float] | ModelError:
    if not isinstance(scores, Mapping) or not scores:
        return bad_output("a mapping of scores by label", scores)
    result: dict[str, float] = {}
    for key, value in scores.items():
        name, number = _label(key), plain(value)
        if name is None or (labels and name not in labels):
            return bad_output(f"scores for the labels {list(labels or ())}", key)
        if isinstance(number, bool) or not isinstance(number, int | float):
            return bad_output("numbers as scores", {key: value})
        if not -_ROUNDING <= number <= 1.0 + SUM_TOLERANCE:
            return bad_output("finite scores in [0, 1]", {key: value})
        result[name] = min(max(float(number), 0.0), 1.0)
    total = math.fsum(result.values())
    if abs(total - 1.0) > SUM_TOLERANCE:
        return bad_output("scores that sum to 1", f"a sum of {total:.6g}")
    return result
