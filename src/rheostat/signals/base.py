"""Numbers known before deciding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from msgspec import Struct

from rheostat.types import Outcome, Request


@runtime_checkable
class Scorer(Protocol):
    """Makes one or more signals from a request; pure computation, quick enough for the request path."""

    names: tuple[str, ...]

    def score(self, request: Request) -> Mapping[str, float]:
        """Return the signals. Anything raised here is the router's own failure: the request goes to the default model."""


@runtime_checkable
class AnswerScorer(Protocol):
    """Makes signals from answers: it is asked once, as soon as every model of `needs` has come back, well or not.

    Pure computation, quick enough for the request path; live and in replay it is asked at the same point.
    """

    names: tuple[str, ...]
    needs: tuple[str, ...]

    def score(self, request: Request, signals: Mapping[str, float], outcomes: Mapping[str, Outcome]) -> Mapping[str, float]:
        """Return the signals. `signals` are those made before; `outcomes` holds the models of `needs`, failed ones too.

        Anything raised here leaves the signals absent: a policy that reads them fails, and the default model answers.
        """


class ScorerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="scorer"):
    """What a learned or hand-made signal may say in the config; each kind of scorer adds its own fields."""

    def signals(self, name: str) -> tuple[str, ...]:
        """Return the signals that the entry `name` makes: the one of that name."""
        return (name,)

    def open(self, name: str, base: str) -> Scorer | AnswerScorer:
        """Load the scorer of the signal `name`. `base` is the folder that relative paths start from.

        Raises:
            ConfigError, MissingExtra: it cannot be loaded; the message says what to do.
        """
        raise NotImplementedError(type(self).__name__)
