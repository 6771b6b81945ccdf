"""Health checks in service: every model that wants them is tried at its own times, and none can stop another's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING, cast

from rheostat.chance import chance
from rheostat.engine.execute import judged
from rheostat.errors import FAILURES, ModelError
from rheostat.pool import Model
from rheostat.resilience.health import delay_s

if TYPE_CHECKING:
    from rheostat.clock import Clock
    from rheostat.pool import Backend, RemoteBackend, Reply

_log = logging.getLogger("rheostat.engine")


class Prober:
    """Checks models for as long as it follows them; it must be closed with `aclose`."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._tasks: dict[Model, asyncio.Task[None]] = {}
        self._running: dict[Model, Future[Reply]] = {}

    def follow(self, models: Iterable[Model]) -> None:
        """Check these models from now on, and no others; those that were followed before keep their times.

        Models whose `health.interval` is 0 are passed over. Needs a running event loop if any is not.
        """
        wanted = [model for model in models if model.settings.health.interval > 0.0]
        for model in [model for model in self._tasks if model not in wanted]:
            self._tasks.pop(model).cancel()
            self._running.pop(model, None)
        for model in wanted:
            if model not in self._tasks:
                self._tasks[model] = asyncio.ensure_future(self._watch(model))

    async def aclose(self) -> None:
        """Stop; when it returns, no check is being waited for."""
        tasks = list(self._tasks.values())
        self.follow(())
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, model: Model) -> None:
        settings = model.settings.health
        wait = settings.interval * chance(f"health/{model.name}", "first")  # a pool is not checked all at once
        while True:
            model.check_due = self.clock.monotonic() + wait
            await asyncio.sleep(wait)
            try:
                model.checked(await self._check(model), self.clock.monotonic())
            except Exception:  # a fault of ours must not end the checks of this model
                _log.exception("the health check of model %s failed inside", model.name)
            wait = delay_s(model.health, settings, model.name)

    async def _check(self, model: Model) -> str | None:
        """Return None when the model is well, else why not."""
        limit = float(model.settings.health.timeout)
        try:
            async with asyncio.timeout(limit):
                if model.check is not None:
                    await model.check.acheck(limit)
                    return None
                _, failure = judged(model, await self._reply(model, limit))
        except TimeoutError:
            return f"no answer within {limit:g} s"
        except ModelError as error:
            return _ill(error.kind, str(error))
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return f"{type(error).__name__}, and nobody had cancelled it"
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # whatever a check raises is its model's trouble only
            return f"{type(error).__name__}: {error}"
        return None if failure is None else _ill(failure.kind, failure.message)

    async def _reply(self, model: Model, limit: float) -> Reply:
        row = model.settings.probe_rows[0]
        if model.remote:
            return (await cast("RemoteBackend", model.backend).apredict((row,), limit))[0]
        backend = cast("Backend", model.backend)
        if model.inline and model.settings.max_concurrency == 1:  # not fit for two threads, and measured to be quick
            return backend.predict((row,))[0]
        before = self._running.get(model)
        if before is not None and not before.done():
            return ModelError("timeout", "the last check is still running")
        work = self._running[model] = model.threads.submit(lambda: backend.predict((row,))[0])
        return await asyncio.wrap_future(work)


def _ill(kind: str, message: str) -> str | None:
    """Return why a check that failed is a bad one; None where it is not: "too busy" is an answer, "not there" is none."""
    return message or kind if FAILURES[kind].counts or kind == "unavailable" else None
