"""A model that is made of others: how it asks them, and the one answer that they write together."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import ClassVar

from msgspec import structs

from rheostat.backends.reply import bad_output
from rheostat.backends.writing import Asks, Writing
from rheostat.errors import ConfigError, ModelError, Problem
from rheostat.pool.backend import ModelSettings, Piece, Reply, Row
from rheostat.resilience.stream import StreamLimits
from rheostat.types import Chat, Failure, Prediction
from rheostat.types.ability import needs_of

LONGEST_S = 3600.0
"""How long a part may take where nothing else bounds it."""


class JointSettings(ModelSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every model made of others may say. Their breakers, limits, timeouts and costs hold for every call of theirs; its
    own `cost` counts before a call, and for one that fails."""

    stream: StreamLimits | None = StreamLimits()

    parts: ClassVar[tuple[str, ...]] = ()  # the fields that name its models

    @property
    def rows_together(self) -> bool:
        """False: one answer is written at a time."""
        return False

    def charge(self, said: Prediction | None, tries: int) -> float:
        """Return what the parts cost together, where the answer says who wrote it."""
        return sum(span.cost for span in said.spans) if said is not None and said.spans else self.cost * tries

    def _check_parts(self) -> None:
        names = [getattr(self, field) for field in self.parts]
        if len(set(names)) < len(names):
            raise ValueError(f"`{'` and `'.join(self.parts)}` are the same model: name two")
        for field in ("labels", "batch", "workers", "prepare", "calibration"):
            if getattr(self, field):
                raise ValueError(f"`{field}` belongs to the models that it is made of: remove it here")
        if not self.resident or self.run != "auto" or self.stream is None:
            told = "`resident`, `run` and `stream: null` belong to the models that it is made of"
            raise ValueError(f"{told}: remove them here")


class Joint:
    """A `RemoteBackend` and `StreamingBackend` whose parts are bound to it once the pool is open."""

    def __init__(self, settings: JointSettings) -> None:
        self.labels: tuple[str, ...] | None = None
        self._settings = settings
        self._name = ""
        self._asks: Asks | None = None

    def bind(self, name: str, asks: Asks) -> None:
        """Take the pool that its parts are asked from, and its own name in it."""
        self._name, self._asks = name, asks

    async def apredict(self, rows: Sequence[Row], timeout_s: float) -> Sequence[Reply]:
        """Answer every row within `timeout_s` seconds; each fails alone."""
        return [await self._whole(row, timeout_s) for row in rows]

    async def astream(self, row: Row, timeout_s: float) -> AsyncGenerator[Piece]:
        """Yield the answer to one row as it is written.

        Raises:
            ModelError: none of the models could go on.
        """
        writing = self._begin(row, timeout_s)
        async with aclosing(self._alone(writing) if is_alone(row) else self._written(writing)) as pieces:
            async for piece in pieces:
                yield piece
        if writing.outcome is not None:
            yield _handed_on(writing)
            return
        for piece in writing.end():
            yield piece

    async def aclose(self) -> None:
        """Nothing: the parts are the pool's."""

    def _written(self, writing: Writing) -> AsyncGenerator[Piece]:
        """Have the answer written."""
        raise NotImplementedError

    def _first(self) -> str:
        """Return the model that answers alone what only one can answer."""
        raise NotImplementedError

    async def _whole(self, row: Row, timeout_s: float) -> Reply:
        try:
            async with aclosing(self.astream(row, timeout_s)) as pieces:
                async for piece in pieces:
                    if piece.reply is not None:
                        return piece.reply
        except ModelError as error:
            return error
        return bad_output("an answer", "none")

    async def _single(self, row: Row, timeout_s: float) -> Reply:
        """Return the answer of one model alone.

        Raises:
            ModelError: it has none.
        """
        writing = self._begin(row, timeout_s)
        async with aclosing(self._alone(writing)) as pieces:
            async for _ in pieces:
                pass
        return _handed_on(writing).reply or bad_output("an answer", "none")

    async def _alone(self, writing: Writing) -> AsyncGenerator[Piece]:
        """Have one model answer, and hand on what it says as it is."""
        async for piece in writing.as_is(self._first()):
            yield piece

    def _begin(self, row: Row, timeout_s: float) -> Writing:
        if self._asks is None:
            raise ModelError("unavailable", "the models that it is made of are not open")
        return Writing(self._asks, row, self._name, min(timeout_s, LONGEST_S))


def is_alone(row: Row) -> bool:
    """Whether only one model can answer: calls of tools, pictures, forms of answers, several choices and token chances are
    not handed over in the middle, and neither is an answer that the client itself has begun."""
    if not isinstance(row, Chat):
        return False
    several = row.asks("n")
    begun_already = row["messages"][-1]["role"] == "assistant"
    return bool(needs_of(row) or row.asks("logprobs") or (isinstance(several, int) and several > 1) or begun_already)


def _handed_on(writing: Writing) -> Piece:
    """Return the last piece of an answer that one model gave by itself."""
    outcome = writing.outcome
    said = None if outcome is None else outcome.prediction
    if said is None:
        failure = (outcome and outcome.failure) or Failure("bad_output", "no answer")
        raise ModelError(failure.kind, failure.message, upstream_status=failure.upstream_status)
    return Piece(finish="whole", reply=structs.replace(said, spans=tuple(writing.spans)))


def refusal(field: str, message: str) -> ConfigError:
    """Say what is wrong with a field."""
    return ConfigError([Problem(field, None, message)])
