"""The numbers a small model reads of a request and of what the models said, in the order it was trained with."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from rheostat.signals.confidence import entropy, margin
from rheostat.signals.feature_line import FeatureLine, shown_value
from rheostat.types import Outcome, Request

Outcomes = Mapping[str, Outcome]
Read = Callable[[Request, Outcomes], float]

_EDGE: Final = 1e-6  # of a probability in log odds
_NAME: Final = re.compile(r"(confidence|margin|entropy|odds|gap|distance|agree|past)\((.*)\)", re.DOTALL)
_FORMS: Final = (
    "confidence(MODEL), margin(MODEL), entropy(MODEL), odds(MODEL=LABEL), gap(A,B), gap(A,B=LABEL), distance(A,B), "
    "agree(A,B), past(MODEL;FIELD)"
)


class Past(Struct, frozen=True, kw_only=True):
    """How the models did on earlier rows, by the values of one meta field, as of the end of training.

    `keys` holds, per value, one mean loss per model of `models`; `otherwise` is for values that were not seen.
    """

    models: tuple[str, ...]
    keys: dict[str, tuple[float, ...]]
    otherwise: tuple[float, ...]

    def loss(self, key: str | None, model: str) -> float:
        """Return one model's mean loss under one value."""
        held = self.otherwise if key is None else self.keys.get(key, self.otherwise)
        return held[self.models.index(model)]


class AnswerLine:
    """Reads named numbers off a request and the outcomes of some models; what a failed model would have said is NaN.

    Of answers: `confidence(MODEL)`, `margin(MODEL)` (first score less the second), `entropy(MODEL)` (0 sure, 1 all equal),
    `odds(MODEL=LABEL)` (log odds of a label's score), `gap(A,B)` (confidence of A less that of B), `gap(A,B=LABEL)` (the
    same of the log odds), `distance(A,B)` (total variation of the two distributions, 0 to 1) and `agree(A,B)` (1 for the
    same label, else 0). Of earlier rows: `past(MODEL;FIELD)`, the model's mean loss under this value of the meta field.
    Everything else is read off the request as in `FeatureLine`.

    Args:
        names: the numbers, in order.
        past: by meta field.

    Raises:
        ConfigError: a name is none of these.
        ValueError: a name is of answers and not whole, or there is no past of its field.
    """

    def __init__(self, names: Sequence[str], past: Mapping[str, Past] | None = None) -> None:
        self.names = tuple(names)
        found = {name: _parsed(name) for name in names}
        parts = {name: part for name, part in found.items() if part is not None}
        self._request = FeatureLine([name for name in names if name not in parts])
        self._reads: list[Read | None] = [
            _reader(name, *parts[name], past or {}) if name in parts else None for name in names
        ]
        named = [model for kind, models, _ in parts.values() if kind != "past" for model in models]
        self.needs = tuple(dict.fromkeys(named))

    def read(self, request: Request, outcomes: Outcomes) -> list[float]:
        """Return the numbers, one a name."""
        own = iter(self._request.read(request) if self._request.names else ())
        return [next(own) if read is None else read(request, outcomes) for read in self._reads]


def of_answers(name: str) -> bool:
    """True when the name is of answers or of earlier rows, not of the request."""
    return _NAME.fullmatch(name) is not None


def plain_name(model: str) -> bool:
    """True when a model's name can stand in a feature's name."""
    return bool(model) and not any(sign in model for sign in ",()=;")


def _parsed(name: str) -> tuple[str, tuple[str, ...], str] | None:
    """Return kind, models, and label or field; None for what is not of answers."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    kind, inside = match.groups()
    before, _, rest = inside.partition(";" if kind == "past" else "=")
    models = tuple(before.split(","))
    wanted = 2 if kind in ("gap", "distance", "agree") else 1
    needs_rest, may_rest = kind in ("odds", "past"), kind in ("odds", "past", "gap")
    if len(models) != wanted or not all(map(plain_name, models)) or (needs_rest and not rest) or (rest and not may_rest):
        raise ValueError(f"{name!r} is no number of answers; they are {_FORMS}")
    return kind, models, rest


def _reader(name: str, kind: str, models: tuple[str, ...], rest: str, past: Mapping[str, Past]) -> Read:
    one, other = models[0], models[-1]
    if kind == "past":
        field = rest.removeprefix("meta.")
        if field not in past or one not in past[field].models:
            raise ValueError(f"{name!r}: the file holds no past of {one} by meta.{field}")
        held = past[field]
        return lambda request, _: held.loss(key_of(request.meta.get(field)), one)
    if kind == "odds":
        return lambda _, outcomes: _odds(outcomes, one, rest)
    if kind == "gap" and rest:
        return lambda _, outcomes: _odds(outcomes, one, rest) - _odds(outcomes, other, rest)
    if kind == "gap":
        return lambda _, outcomes: _sure(outcomes, one) - _sure(outcomes, other)
    if kind == "distance":
        return lambda _, outcomes: _distance(_scores(outcomes, one), _scores(outcomes, other))
    if kind == "agree":
        return lambda _, outcomes: _agree(outcomes, one, other)
    if kind == "confidence":
        return lambda _, outcomes: _sure(outcomes, one)
    shape = margin if kind == "margin" else entropy

    def read(_: Request, outcomes: Outcomes) -> float:
        scores = _scores(outcomes, one)
        return shape(scores) if scores else math.nan

    return read


def key_of(value: object) -> str | None:
    """Return a meta value as the key of a past; None when it is absent."""
    return None if value is None or value == "" else shown_value(value)


def _scores(outcomes: Outcomes, model: str) -> Mapping[str, float] | None:
    outcome = outcomes.get(model)
    return outcome.prediction.scores if outcome is not None and outcome.prediction is not None else None


def _sure(outcomes: Outcomes, model: str) -> float:
    outcome = outcomes.get(model)
    confidence = outcome.confidence if outcome is not None else None
    return math.nan if confidence is None else confidence


def _odds(outcomes: Outcomes, model: str, label: str) -> float:
    scores = _scores(outcomes, model)
    if not scores:
        return math.nan
    chance = min(1.0 - _EDGE, max(_EDGE, scores.get(label, 0.0)))
    return math.log(chance / (1.0 - chance))


def _distance(one: Mapping[str, float] | None, other: Mapping[str, float] | None) -> float:
    if not one or not other:
        return math.nan
    return 0.5 * math.fsum(abs(one.get(label, 0.0) - other.get(label, 0.0)) for label in {**one, **other})


def _agree(outcomes: Outcomes, one: str, other: str) -> float:
    said = [outcome.prediction for model in (one, other) if (outcome := outcomes.get(model)) is not None]
    if len(said) < 2 or said[0] is None or said[1] is None:
        return math.nan
    return float(said[0].label == said[1].label)
