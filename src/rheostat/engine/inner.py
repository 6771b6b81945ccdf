"""Calls of models by a model that is made of them: each is an attempt like any other, under the part's own limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING

import uuid_utils

from rheostat.backends.joint import Joint, JointSettings
from rheostat.engine.execute import Executor
from rheostat.engine.progress import Progress
from rheostat.engine.stream import Outlet
from rheostat.errors import Problem
from rheostat.pool.backend import StreamingBackend
from rheostat.types import Outcome, Request

if TYPE_CHECKING:
    from rheostat.clock import Clock
    from rheostat.pool import Model
    from rheostat.pool.backend import Piece, Row

_TRIES = 2


class Inner:
    """Asks the models of a pool by name; breakers, places, limits of streams and costs are theirs, as when a policy asks.

    One that fails before its first piece is tried once more, within its retry budget: once an answer has begun, nobody
    above this can try again.
    """

    def __init__(self, models: Mapping[str, Model], clock: Clock) -> None:
        self._models = models
        self._clock = clock
        self._executor = Executor(clock)

    async def ask(self, name: str, row: Row, timeout_s: float) -> AsyncGenerator[Piece | Outcome]:
        """Yield the pieces of the model's answer, and at last what came of it. Closing it stops the model's work."""
        now = self._clock.monotonic()
        request = Request(id=str(uuid_utils.uuid7()), data=row, received=now, deadline=now + timeout_s)
        model, outlet = self._models[name], Outlet()
        progress = Progress(model)
        task = asyncio.ensure_future(self._executor.run(model, request, _TRIES, 0.0, outlet, progress))
        task.add_done_callback(lambda _: outlet.close())
        try:
            while (piece := await outlet.take()) is not None:
                yield piece
            yield await task
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait((task,))


def unusable(models: Mapping[str, Model]) -> list[Problem]:
    """Name the parts of models made of others that cannot write an answer piece by piece."""
    found = []
    for name, model in models.items():
        settings = model.settings
        for field in settings.parts if isinstance(settings, JointSettings) else ():
            part = models.get(getattr(settings, field))
            if part is not None and not isinstance(part.backend, StreamingBackend):
                found.append(
                    Problem(f"{name}.{field}", None, f"`{part.name}` gives no answer piece by piece; name another model")
                )
    return found


def bind(models: Mapping[str, Model], clock: Clock) -> None:
    """Give the models made of others the pool that their parts are asked from."""
    inner = Inner(models, clock)
    for name, model in models.items():
        if isinstance(model.backend, Joint):
            model.backend.bind(name, inner)
