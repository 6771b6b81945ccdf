"""A model with a calibrator behind it: a wrapped backend is a backend."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, cast, overload

from msgspec import structs

from rheostat.pool.backend import Backend, Describable, Piece, RemoteBackend, Reply, Row, StreamingBackend
from rheostat.signals.calibrator import Calibrator
from rheostat.types import Prediction


@overload
def calibrated(backend: Backend, calibrator: Calibrator) -> Backend: ...
@overload
def calibrated(backend: RemoteBackend, calibrator: Calibrator) -> RemoteBackend: ...
@overload
def calibrated(backend: Backend | RemoteBackend, calibrator: Calibrator) -> Backend | RemoteBackend: ...
def calibrated(backend: Backend | RemoteBackend, calibrator: Calibrator) -> Backend | RemoteBackend:
    """Return the backend with its confidences calibrated; of the same kind, local or remote, as the one given."""
    if isinstance(backend, RemoteBackend):
        kind = CalibratedAwaited if isinstance(backend, Backend) else CalibratedRemote
        return kind(backend, calibrator)
    return Calibrated(backend, calibrator)


class Calibrated:
    """A local model, calibrated."""

    def __init__(self, backend: Backend, calibrator: Calibrator) -> None:
        self.labels = backend.labels
        self.probes: Any = getattr(backend, "probes", None)
        self._backend = backend
        self._calibrator = calibrator

    def predict(self, rows: Sequence[Row]) -> Sequence[Reply]:
        """Answer every row.

        Raises:
            ModelError: the whole call failed.
        """
        return _applied(self._calibrator, self._backend.predict(rows))

    def close(self) -> None:
        """Close the model."""
        self._backend.close()


class CalibratedRemote:
    """A model elsewhere, calibrated."""

    def __init__(self, backend: RemoteBackend, calibrator: Calibrator) -> None:
        self.labels = backend.labels
        self._backend = backend
        self._calibrator = calibrator
        if isinstance(backend, StreamingBackend):
            self._streams = backend.astream
            self.astream = self._streamed  # only a model that can stream has it

    async def apredict(self, rows: Sequence[Row], timeout_s: float) -> Sequence[Reply]:
        """Answer every row within `timeout_s` seconds.

        Raises:
            ModelError: the whole call failed.
        """
        return _applied(self._calibrator, await self._backend.apredict(rows, timeout_s))

    async def _streamed(self, row: Row, timeout_s: float) -> AsyncGenerator[Piece]:
        async with aclosing(cast("AsyncGenerator[Piece]", self._streams(row, timeout_s))) as source:
            async for piece in source:
                reply = piece.reply
                changed = self._calibrator.apply(reply) if isinstance(reply, Prediction) else reply
                yield piece if changed is reply else structs.replace(piece, reply=changed)

    async def adescribe(self, timeout_s: float) -> None:
        """Hold what the model's server says to what the config says, where it says something."""
        if isinstance(self._backend, Describable):
            await self._backend.adescribe(timeout_s)

    async def aclose(self) -> None:
        """Close the model."""
        await self._backend.aclose()


class CalibratedAwaited(CalibratedRemote):
    """A model of this process that is awaited, calibrated."""

    def __init__(self, backend: RemoteBackend, calibrator: Calibrator) -> None:
        assert isinstance(backend, Backend)
        super().__init__(backend, calibrator)
        self._local = Calibrated(backend, calibrator)
        self.probes = self._local.probes

    def predict(self, rows: Sequence[Row]) -> Sequence[Reply]:
        """Answer every row.

        Raises:
            ModelError: the whole call failed.
        """
        return self._local.predict(rows)

    def close(self) -> None:
        """Close the model."""
        self._local.close()


def _applied(calibrator: Calibrator, replies: Sequence[Reply]) -> list[Reply]:
    return [calibrator.apply(reply) if isinstance(reply, Prediction) else reply for reply in replies]
