"""Models that do what a test tells them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import Struct

from rheostat.errors import ModelError
from rheostat.pool import Model, ModelSettings, Reply, Row
from rheostat.types import Prediction


class Act(Struct, frozen=True):
    """What one call does: wait `delay_s` seconds, then give `reply`, or raise `raises`; `hang` never ends."""

    reply: Prediction | ModelError | None = None
    delay_s: float = 0.0
    raises: Exception | None = None
    hang: bool = False


class Scripted:
    """A remote backend that plays acts in order; the last one repeats. It counts what was asked and what was cut off."""

    def __init__(self, *acts: Act, labels: tuple[str, ...] | None = None) -> None:
        self.acts = acts
        self.labels = labels
        self.calls = 0
        self.cancelled = 0
        self.running = 0
        self.most_running = 0
        self.closed = 0

    async def apredict(self, rows: Sequence[Row], timeout_s: float) -> Sequence[Reply]:  # noqa: ARG002
        act = self.acts[min(self.calls, len(self.acts) - 1)]
        self.calls += 1
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            if act.hang:
                await asyncio.Event().wait()
            if act.delay_s:
                await asyncio.sleep(act.delay_s)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1
        if act.raises is not None:
            raise act.raises
        return [act.reply if act.reply is not None else Prediction("yes", 1.0) for _ in rows]

    async def aclose(self) -> None:
        self.closed += 1


def scripted_model(name: str, *acts: Act, **settings: object) -> Model:
    """Return a model in service whose backend plays `acts`; `settings` are those of ModelSettings."""
    return Model(name, ModelSettings(**settings), Scripted(*acts))  # type: ignore[arg-type]
