"""Every model asked about a few rows: local ones in batches in a thread, remote ones side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from rheostat.clock import Clock
from rheostat.engine.execute import Executor, judged
from rheostat.errors import ModelError
from rheostat.jobs.example import Example
from rheostat.pool import Backend, Model, Reply
from rheostat.types import Attempt, Outcome, Request, text_of

PATIENCE_S: Final = 30.0
"""Seconds that one try at a remote model without a `timeout` of its own may take."""
_PAUSES: Final = 5  # waits for a remote model that says it is busy, per row
_LONGEST_PAUSE_S: Final = 60.0
_CHUNK: Final = 32  # rows between two looks at the clock and the journal, at least
_BUSY: Final = frozenset({"rate_limited", "overloaded"})


class Asker:
    """Asks models about rows.

    A local model gets `batch` rows at a time. The first row of a batch is asked alone and timed, and its time stands for
    the whole batch: what one request waits for is what counts later, and a share of a batch's time would flatter the
    model. With `batch` 1 every row is timed by itself.

    Args:
        models: by name.
        batch: rows in one call of a local model, 1 or more.
        concurrency: calls at a time of each remote model without a `max_concurrency` of its own.
        tries: tries at a remote model, 1 or more, of which the last counts; besides, a model that says it is busy is
            waited for.
    """

    def __init__(self, models: Mapping[str, Model], clock: Clock, *, batch: int, concurrency: int, tries: int) -> None:
        self.models = models
        self.batch = batch
        self.tries = tries
        self._clock = clock
        self._executor = Executor(clock)
        limits = {name: m.settings.max_concurrency or concurrency for name, m in models.items() if m.remote}
        self._places = {name: asyncio.Semaphore(limit) for name, limit in limits.items()}
        self.chunk = max(batch, _CHUNK, 4 * max(limits.values(), default=0))

    async def ask(self, examples: Sequence[Example]) -> list[dict[str, Outcome]]:
        """Return every model's outcome on each of the examples."""
        remote = asyncio.gather(*(self._remote(name, examples) for name in self._places))
        found: dict[str, list[Outcome]] = {}
        try:
            for name, model in self.models.items():  # one after another, so that they do not slow each other's times
                if name not in self._places:
                    found[name] = []
                    for start in range(0, len(examples), self.batch):
                        rows = [example.data for example in examples[start : start + self.batch]]
                        found[name] += await asyncio.to_thread(_local, model, rows, self._clock)
            found.update(zip(self._places, await remote, strict=True))
        finally:
            remote.cancel()
        return [{name: found[name][row] for name in self.models} for row in range(len(examples))]

    async def _remote(self, name: str, examples: Sequence[Example]) -> list[Outcome]:
        return list(await asyncio.gather(*(self._one(name, example) for example in examples)))

    async def _one(self, name: str, example: Example) -> Outcome:
        model = self.models[name]
        async with self._places[name]:
            for _ in range(_PAUSES):
                request = Request(
                    id=example.id, data=example.data, text=text_of(example.data), received=self._clock.monotonic()
                )
                outcome = await self._executor.run(model, request, self.tries, PATIENCE_S)
                failure = outcome.failure
                if failure is None or failure.kind not in _BUSY:
                    break
                await asyncio.sleep(min(failure.retry_after_s or 1.0, _LONGEST_PAUSE_S))
        if outcome.ok and outcome.attempts:  # failed tries cost, but a request waits for the one that answers
            outcome = Outcome(
                outcome.model, outcome.prediction, None, outcome.attempts, outcome.served_by, outcome.version,
                outcome.level, outcome.attempts[-1].elapsed_s, outcome.cost,
            )  # fmt: skip
        return outcome


def _local(model: Model, rows: Sequence[Any], clock: Clock) -> list[Outcome]:
    began = clock.monotonic()
    replies = _replies(model, rows[:1])
    alone = clock.monotonic() - began
    replies += _replies(model, rows[1:])
    return [_outcome(model, reply, alone) for reply in replies]


def _replies(model: Model, rows: Sequence[Any]) -> list[Reply]:
    """Ask for all rows at once; when that fails, row by row, so that a bad one fails alone."""
    if not rows:
        return []
    try:
        replies = list(cast("Backend", model.backend).predict(rows))
        if len(replies) == len(rows):
            return replies
        error = ModelError("bad_output", f"expected {len(rows)} replies, got {len(replies)}")
    except ModelError as told:
        error = told
    except Exception as raised:  # whatever a backend raises is this call's failure only
        error = ModelError("crashed", f"{type(raised).__name__}: {raised}")
    if len(rows) == 1:
        return [error]
    return [reply for row in rows for reply in _replies(model, [row])]


def _outcome(model: Model, reply: Reply, elapsed_s: float) -> Outcome:
    prediction, failure = judged(model, reply)
    return Outcome(
        model=model.name,
        prediction=prediction,
        failure=failure,
        attempts=(Attempt(model.name, 0.0, elapsed_s, failure),),
        served_by=model.name,
        version=model.settings.version,
        elapsed_s=elapsed_s,
        cost=model.settings.cost,
    )
