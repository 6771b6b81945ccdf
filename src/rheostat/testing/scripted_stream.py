"""Models that stream what a test tells them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

from msgspec import Struct

from rheostat.errors import ModelError
from rheostat.pool import Model, ModelSettings, Reply, Row
from rheostat.pool.backend import Piece
from rheostat.resilience.stream import StreamLimits
from rheostat.types import Prediction


class Flow(Struct, frozen=True):
    """What one streamed call does: wait `delay_s`, give the `pieces`, each `gap_s` after the one before, and then end, fail
    with `then`, stop without an end (`cut`), or fall silent (`hang`)."""

    pieces: tuple[str, ...] = ()
    delay_s: float = 0.0
    gap_s: float = 0.0
    then: ModelError | None = None
    cut: bool = False
    hang: bool = False


class ScriptedStream:
    """A streaming backend that plays flows in order; the last one repeats. It counts calls, what was closed before its end,
    and the pieces that were taken. Asked for a whole answer it gives the pieces joined."""

    def __init__(self, *flows: Flow, labels: tuple[str, ...] | None = None) -> None:
        self.flows = flows
        self.labels = labels
        self.calls = 0
        self.running = 0
        self.cancelled = 0
        self.taken = 0
        self.closed = 0

    async def astream(self, row: Row, timeout_s: float) -> AsyncGenerator[Piece]:  # noqa: ARG002
        flow = self.flows[min(self.calls, len(self.flows) - 1)]
        self.calls += 1
        self.running += 1
        whole = False
        try:
            if flow.delay_s:
                await asyncio.sleep(flow.delay_s)
            for index, text in enumerate(flow.pieces):
                if index and flow.gap_s:
                    await asyncio.sleep(flow.gap_s)
                yield Piece(text)
                self.taken += 1
            if flow.hang:
                await asyncio.Event().wait()
            whole = True
            if flow.then is not None:
                raise flow.then
            if not flow.cut:
                yield Piece(finish="stop")
        finally:
            self.running -= 1
            self.cancelled += not whole

    async def apredict(self, rows: Sequence[Row], timeout_s: float) -> Sequence[Reply]:
        """Answer with the joined pieces, or with the failure."""
        replies: list[Reply] = []
        for row in rows:
            texts: list[str] = []
            finish: str | None = None
            try:
                async for piece in self.astream(row, timeout_s):
                    texts.append(piece.text)
                    finish = piece.finish
            except ModelError as error:
                replies.append(error)
                continue
            label = "".join(texts).strip()
            if finish is None:
                replies.append(ModelError("reset", "truncated"))
            else:
                replies.append(Prediction(label) if label else ModelError("bad_output", "no text"))
        return replies

    async def aclose(self) -> None:
        self.closed += 1


def streaming_model(name: str, *flows: Flow, limits: StreamLimits | None = None, **settings: object) -> Model:
    """Return a model in service that streams `flows`; `settings` are those of ModelSettings."""
    own = ModelSettings(stream=limits or StreamLimits(), **settings)  # type: ignore[arg-type]
    return Model(name, own, ScriptedStream(*flows))
