"""Models for storms: what each of them does changes with time, and it counts who called it and how often."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import Executor, Future
from contextvars import Context, ContextVar, copy_context
from functools import partial
from typing import Any

from rheostat.errors import ModelError
from rheostat.pool import ModelSettings, Reply, Row
from rheostat.pool.backend import Piece
from rheostat.testing.virtual import VirtualLoop
from rheostat.types import Prediction

FAULTS = ("ok", "slow", "hang", "crash", "upstream_error", "connection", "reset", "rate_limited", "bad_output",
          "input_refused", "misconfigured", "input_too_large")  # fmt: skip
THREAD_HANG_S = 15.0
"""How long a thread that hangs is gone: unlike a call elsewhere it cannot be cancelled, so it has to end by itself."""
ASKING: ContextVar[str] = ContextVar("asking")
"""Which serving of a request is calling."""
_FAULT: ContextVar[str] = ContextVar("fault")


class Sky:
    """The weather over all models of one storm, bad until `calm` is set. `opened` are all models that there ever were."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.calm = False
        self.opened: list[Weathered] = []


class Weathered:
    """What all kinds share: the faults by time, and the counts."""

    def __init__(self, sky: Sky, settings: StormModel) -> None:
        self.labels: tuple[str, ...] | None = None
        self.probes: tuple[Row, ...] = ()  # nothing is tried at load
        self.settings = settings
        self.calls: Counter[str] = Counter()
        self.again = 0
        self.running = 0
        self.most_running = 0
        self.closed = 0
        self.called_closed = False
        self._sky = sky
        sky.opened.append(self)

    async def acheck(self, timeout_s: float) -> None:
        """Return when the model is well."""
        fault = self._fault()
        await asyncio.sleep(2.0 * timeout_s if fault == "hang" else 0.01)
        if fault not in ("ok", "slow"):
            raise ModelError("crashed" if fault == "crash" else fault, "planted")

    def _fault(self) -> str:
        if self._sky.calm:
            return "ok"
        now = self._sky.loop.time()
        return next(name for at, name in reversed(self.settings.changes) if at <= now)

    def _begin(self) -> str:
        asking = ASKING.get()
        self.again += asking in self.calls
        self.calls[asking] += 1
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        self.called_closed |= self.closed > 0
        return self._fault()

    def _end(self) -> None:
        self.running -= 1

    def _reply(self, fault: str) -> Reply:
        if fault == "crash":
            raise ValueError("a fault of its own")
        if fault in ("ok", "slow", "hang"):
            return Prediction(f"said by {self.settings.called}", 0.3 + 0.6 * (self.calls.total() % 2))
        return ModelError(fault, "planted", retry_after_s=1.5 if fault == "rate_limited" else None)


class Elsewhere(Weathered):
    """A remote model."""

    async def apredict(self, rows: Sequence[Row], timeout_s: float) -> Sequence[Reply]:  # noqa: ARG002
        fault = self._begin()
        try:
            await asyncio.sleep(0.5 if fault == "slow" else 0.02)
            if fault == "hang":
                await asyncio.Event().wait()
            return [self._reply(fault) for _ in rows]
        finally:
            self._end()

    async def aclose(self) -> None:
        self.closed += 1


class Streaming(Elsewhere):
    """A remote model that gives its answer word by word; a fault comes before the first word or after it."""

    async def astream(self, row: Row, timeout_s: float) -> AsyncGenerator[Piece]:  # noqa: ARG002
        fault = self._begin()
        try:
            await asyncio.sleep(0.5 if fault == "slow" else 0.02)
            words = ["said", " by", f" {self.settings.called}"]
            for word in words if fault in ("ok", "slow") else words[: self.calls.total() % 3]:
                yield Piece(word)
                await asyncio.sleep(0.3 if fault == "slow" else 0.01)
            if fault == "hang":
                await asyncio.Event().wait()
            if fault == "reset" and self.calls.total() % 2:
                return  # it just ends, without saying that it is complete
            reply = self._reply(fault)
            if isinstance(reply, ModelError):
                raise reply
            yield Piece(finish="stop", reply=reply)
        finally:
            self._end()


class Here(Weathered):
    """A model of this process: at once on the event loop, or for a while in a thread."""

    def begin(self) -> float:
        """Take note that a thread starts with it; returns how long that takes, in seconds."""
        fault = self._begin()
        _FAULT.set(fault)
        return {"slow": 0.5, "hang": THREAD_HANG_S}.get(fault, 0.02)

    def predict(self, rows: Sequence[Row]) -> Sequence[Reply]:
        fault = _FAULT.get("") or self._begin()
        try:
            return [self._reply(fault) for _ in rows]
        finally:
            self._end()

    def close(self) -> None:
        self.closed += 1


class VirtualThreads(Executor):
    """`count` threads in virtual time: what is given to one is done when the time has passed that it says it takes."""

    def __init__(self, loop: VirtualLoop, count: int, model: Here) -> None:
        self._loop, self._free, self._model = loop, count, model
        self._queue: deque[tuple[Future[Any], Context, Callable[[], Any]]] = deque()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        job: Future[Any] = Future()
        self._queue.append((job, copy_context(), partial(fn, *args, **kwargs)))
        self._start()
        return job

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002
        if cancel_futures:
            for job, _, _ in self._queue:
                job.cancel()

    def _start(self) -> None:
        while self._free and self._queue:
            job, context, work = self._queue.popleft()
            if job.set_running_or_notify_cancel():
                self._free -= 1
                self._loop.call_later(context.run(self._model.begin), self._done, job, context, work)

    def _done(self, job: Future[Any], context: Context, work: Callable[[], Any]) -> None:
        try:
            job.set_result(context.run(work))
        except BaseException as error:  # as a thread hands it on
            job.set_exception(error)
        self._free += 1
        self._start()


class StormModel(ModelSettings, frozen=True, kw_only=True, tag="storm"):
    """A model named `called`; from each time of `changes` on it does what stands there, a word of FAULTS."""

    sky: Any
    called: str
    kind: str
    changes: tuple[tuple[float, str], ...]

    def open(self, base: str) -> Any:  # noqa: ARG002
        return {"elsewhere": Elsewhere, "streaming": Streaming}.get(self.kind, Here)(self.sky, self)
