"""A learned signal: a small ONNX model that reads the text or a few numbers and says a probability."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rheostat.errors import ConfigError, Problem, RheostatError
from rheostat.pool.onnx_session import named_labels, open_session
from rheostat.signals.base import Scorer, ScorerSettings
from rheostat.signals.feature_line import FeatureLine
from rheostat.types import Request
from rheostat.types.text import well_formed

_OUTPUTS = ("tensor(float)", "tensor(double)")


class ScorerError(RheostatError):
    """A scorer gave no usable number; the router goes on with its default model."""

    type = "scorer_error"


class OnnxScorerSettings(ScorerSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="onnx"):
    """`path` to an ONNX model that says how likely something is.

    With `features` it gets a float matrix: names of text features, `meta.FIELD` or `data.FIELD` (truth values are 0
    and 1, what is missing or no number is NaN), `meta.FIELD=VALUE` (1 where the field is that value, else 0). Without, it
    takes the text itself. `positive` names the class whose probability is the signal; the default is the last one, which
    is `1` or `true` in a model with two classes.
    """

    path: str
    features: tuple[str, ...] = ()
    positive: str = ""

    def open(self, name: str, base: str) -> Scorer:
        """Load the scorer of the signal `name`.

        Raises:
            ConfigError: a feature is unknown, the file is no ONNX model, or its inputs or outputs are of another kind.
        """
        line = FeatureLine(self.features)
        path = Path(base, self.path)
        session = open_session(path, 1, "path")
        inputs = session.get_inputs()
        wanted = "tensor(float)" if self.features else "tensor(string)"
        if len(inputs) != 1 or inputs[0].type != wanted:
            shown = [f"{each.name}: {each.type}" for each in inputs]
            hint = "" if self.features else " (name the features it takes?)"
            raise ConfigError([Problem("path", None, f"expected one input of {wanted}, the model takes {shown}{hint}")])
        width = inputs[0].shape[-1]
        if self.features and isinstance(width, int) and width != len(self.features):
            raise ConfigError([Problem("features", None, f"{len(self.features)} named, the model takes {width}")])
        return OnnxScorer(name, session, line, *_output(session, path, self.positive))


class OnnxScorer:
    """Runs the session on one request."""

    def __init__(self, name: str, session: Any, line: FeatureLine, output: str, read: Callable[[Any], float]) -> None:
        self.names: tuple[str, ...] = (name,)
        self._name = name
        self._session = session
        self._input = session.get_inputs()[0].name
        self._rank = len(session.get_inputs()[0].shape)
        self._outputs = [output]
        self._read = read
        self._line = line

    def score(self, request: Request) -> Mapping[str, float]:
        """Return the signal.

        Raises:
            ScorerError: the model failed, or what it said is not finite.
        """
        try:
            value = self._read(self._session.run(self._outputs, {self._input: self._tensor(request)})[0])
        except Exception as error:  # onnxruntime has a class of its own for every reason
            raise ScorerError(f"signal {self._name}: {type(error).__name__}: {str(error)[:200]}") from error
        if not math.isfinite(value):
            raise ScorerError(f"signal {self._name}: expected a finite number, got {value}")
        return {self._name: value}

    def _tensor(self, request: Request) -> Any:
        import numpy as np

        if not self._line.names:
            text = np.array([well_formed(request.text).replace("\x00", " ")], dtype=object)
            return text.reshape(1, 1) if self._rank == 2 else text
        return np.array([self._line.read(request)], dtype=np.float32)


def _output(session: Any, path: Path, positive: str) -> tuple[str, Callable[[Any], float]]:
    """Choose the output with the probability, and how the positive class is read from it."""
    outputs = session.get_outputs()
    for each in outputs:
        if each.type.startswith("seq(map("):
            return each.name, lambda value: _of_mapping(value[0], positive)
    numbers = [each for each in outputs if each.type in _OUTPUTS]
    if not numbers:
        raise ConfigError([Problem("path", None, f"no output has numbers: {[each.type for each in outputs]}")])
    column = -1
    if positive:
        labels = named_labels(path, session)
        if labels is None or positive not in labels:
            raise ConfigError([Problem("positive", None, f"{positive!r} is none of the model's labels: {labels}")])
        column = labels.index(positive)
    return numbers[-1].name, lambda value: float(value.reshape(-1)[column])


def _of_mapping(chances: Mapping[Any, float], positive: str) -> float:
    named = {str(key): float(value) for key, value in chances.items()}
    return named[positive] if positive else list(named.values())[-1]
