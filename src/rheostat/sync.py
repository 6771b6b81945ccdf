"""The façade for code that does not use asyncio: the same router, on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from types import TracebackType
from typing import Any, TypeVar

from rheostat.engine.engine import Served
from rheostat.results.result import Result
from rheostat.router import Router
from rheostat.types import Feedback

T = TypeVar("T")


class SyncRouter:
    """A router for ordinary code; use it in a `with` block, from any number of threads."""

    def __init__(self, path: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="rheostat-router", daemon=True)
        self._thread.start()
        try:
            self.router = self._wait(Router.open(path))
        except BaseException:
            self._stop()
            raise

    def predict(self, data: Any, **options: Any) -> Served:
        """Answer one row; `options` are those of `Router.request`.

        Raises:
            RheostatError: nobody could answer, or the request was wrong; the class says which.
        """
        return self._wait(self.router.apredict(data, **options))

    def predict_batch(self, rows: Sequence[Any], **options: Any) -> list[Served]:
        """Answer many rows in order; errors stay in their row (`Served.error`)."""
        return self._wait(self.router.apredict_batch(rows, **options))

    def result(self, result_id: str, tenant: str | None = None) -> Result:
        """Return what came of a promise to complete a request later; see `Router.result`.

        Raises:
            NotFound: nothing of this id was promised to this tenant.
        """
        return self._wait(self.router.result(result_id, tenant))

    def feedback(self, feedback: Feedback) -> None:
        """Keep a later judgement on a request."""
        self._loop.call_soon_threadsafe(self.router.feedback, feedback)

    def status(self) -> dict[str, Any]:
        """Say what runs; see `Router.status`."""
        return self._wait(self._status())

    def close(self) -> None:
        """Finish what is in flight, flush records, close the models."""
        if self._thread.is_alive():
            self._wait(self.router.aclose(drain_s=10.0))
            self._stop()

    async def _status(self) -> dict[str, Any]:
        return self.router.status()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> SyncRouter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def open_router(path: str) -> SyncRouter:
    """Load the config at `path`, open and check its models, and return a router for ordinary code.

    Raises:
        ConfigError: with every mistake that was found.
    """
    return SyncRouter(path)
