"""Signals from a model that the lab trained on what the models said: a learned file that reads answers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from rheostat.errors import ConfigError, Problem
from rheostat.pool.onnx_tokens import TextEncoder
from rheostat.signals.answer_line import AnswerLine, Past
from rheostat.signals.base import AnswerScorer, Scorer, ScorerSettings
from rheostat.signals.kept_weights import KeptAnswerSignals, KeptSignals, Memory
from rheostat.signals.learned import open_learned, run_learned
from rheostat.types import Outcome, Request

PAST_KEY: Final = "rheostat.past"
"""The metadata property of the ONNX file that holds, as JSON, a `Past` by meta field."""


class AnswersScorerSettings(ScorerSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="answers"):
    """`path` to a file that `rheostat train weights` wrote: weights (or one number) made from what the models said.

    A file with several outputs makes the signals `NAME.OUTPUT`; list them as `outputs`. It waits for the answers of the
    models that its card names; a failed one counts as an average answer. With `cache_s` the signals are kept for so many
    seconds and used again for the same `key` (`session`, `tenant` or the name of a meta field), for at most `cache_keys`
    keys; a request without that key is scored afresh. `encoder` as for `learned`.
    """

    path: str
    outputs: tuple[str, ...] = ()
    encoder: str | None = None
    cache_s: float = 0.0
    cache_keys: int = 10_000
    key: str = "session"

    def signals(self, name: str) -> tuple[str, ...]:
        """Return `name`, or `name.OUTPUT` for each of the outputs."""
        return tuple(f"{name}.{output}" for output in self.outputs) or (name,)

    def open(self, name: str, base: str) -> Scorer | AnswerScorer:
        """Load the scorer of the signal `name`; a file that reads no answer gives a scorer of requests.

        Raises:
            ConfigError: the file is none of its kind, its outputs are others, the encoder is missing or another one, or the
                cache has no size.
        """
        if not self.cache_s >= 0.0:
            raise ConfigError([Problem("cache_s", None, f"must be 0 (off) or more, got {self.cache_s}")])
        if self.cache_keys < 1:
            raise ConfigError([Problem("cache_keys", None, f"must be 1 or more, got {self.cache_keys}")])
        opened = open_learned(self.path, self.encoder, self.outputs, base)
        title = Path(self.path).name
        try:
            raw = opened.session.get_modelmeta().custom_metadata_map.get(PAST_KEY, "{}")
            line = AnswerLine(opened.card.features, msgspec.json.decode(raw, type=dict[str, Past]))
        except (ValueError, msgspec.MsgspecError) as error:
            raise ConfigError([Problem("path", None, f"{title} cannot be read: {error}")]) from error
        names = self.signals(name)
        memory = Memory(self.cache_s, self.cache_keys, self.key) if self.cache_s else None
        if not line.needs:
            of_request = RequestSignals(names, opened.session, line, opened.encoder)
            return of_request if memory is None else KeptSignals(of_request, memory)
        of_answers = AnswerSignals(names, opened.session, line, opened.encoder)
        return of_answers if memory is None else KeptAnswerSignals(of_answers, memory)


class RequestSignals:
    """Runs a file whose numbers all come from the request and from earlier rows."""

    def __init__(self, names: tuple[str, ...], session: Any, line: AnswerLine, encoder: TextEncoder | None) -> None:
        self.names = names
        self._session, self._line, self._encoder = session, line, encoder

    def score(self, request: Request) -> Mapping[str, float]:
        """Return the signals.

        Raises:
            ScorerError: the model failed, or what it said is not finite.
        """
        return run_learned(self.names, self._session, lambda: self._line.read(request, {}), self._encoder, request.text)


class AnswerSignals:
    """Runs a file that reads the answers of the models it `needs`."""

    def __init__(self, names: tuple[str, ...], session: Any, line: AnswerLine, encoder: TextEncoder | None) -> None:
        self.names, self.needs = names, line.needs
        self._session, self._line, self._encoder = session, line, encoder

    def score(self, request: Request, signals: Mapping[str, float], outcomes: Mapping[str, Outcome]) -> Mapping[str, float]:
        """Return the signals; see AnswerScorer.

        Raises:
            ScorerError: the model failed, or what it said is not finite.
        """
        del signals
        return run_learned(
            self.names, self._session, lambda: self._line.read(request, outcomes), self._encoder, request.text
        )
