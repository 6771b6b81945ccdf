"""A signal from a Python callable."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

from rheostat.dotted import load_object
from rheostat.errors import ConfigError, Problem
from rheostat.signals.base import Scorer, ScorerSettings
from rheostat.signals.onnx_scorer import ScorerError
from rheostat.types import Request


class PythonScorerSettings(ScorerSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="python"):
    """`callable: package.module:name` gets the Request and returns a number. It runs on the request path, so it must be
    quick. A class is made with `args` and its instance called. The module may lie beside the config file."""

    callable: str
    args: Mapping[str, Any] = {}

    def open(self, name: str, base: str) -> Scorer:
        """Import the callable of the signal `name`.

        Raises:
            ConfigError: it cannot be imported, made or called, or is a coroutine function.
        """
        target = load_object(self.callable, base, "callable")
        if inspect.isclass(target):
            try:
                target = target(**self.args)
            except Exception as error:  # whatever the user's class raises
                told = f"{self.callable} cannot be made: {type(error).__name__}: {error}"
                raise ConfigError([Problem("args", None, told)]) from error
        elif self.args:
            raise ConfigError([Problem("args", None, f"{self.callable} is no class, so it takes no args")])
        if not callable(target) or inspect.iscoroutinefunction(target):
            raise ConfigError([Problem("callable", None, f"{self.callable} is not a plain function")])
        return PythonScorer(name, target)


class PythonScorer:
    """Calls the function."""

    def __init__(self, name: str, target: Callable[[Request], Any]) -> None:
        self.names: tuple[str, ...] = (name,)
        self._name = name
        self._target = target

    def score(self, request: Request) -> Mapping[str, float]:
        """Return the signal.

        Raises:
            ScorerError: the callable failed, or what it returned is no finite number.
        """
        try:
            value = float(self._target(request))
        except Exception as error:  # whatever the user's code raises
            raise ScorerError(f"signal {self._name}: {type(error).__name__}: {error}") from error
        if not math.isfinite(value):
            raise ScorerError(f"signal {self._name}: expected a finite number, got {value}")
        return {self._name: value}
