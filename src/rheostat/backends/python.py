"""A Python callable as a model."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from traceback import walk_tb
from typing import Any, ClassVar

from rheostat.backends.labels import settle_labels
from rheostat.backends.reply import as_reply
from rheostat.dotted import load_object
from rheostat.errors import ConfigError, ModelError, Problem
from rheostat.pool.backend import Backend, ModelSettings, RemoteBackend, Reply, Row


class PythonModel(ModelSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="python"):
    """`callable: package.module:name` gets a list of rows and returns as many answers, in order; with `each: true` it
    gets one row and returns one answer. An answer is a label; a pair of label and confidence; a mapping of scores by
    label that sum to 1; or a mapping with `label` and, if wanted, `confidence`, `scores` and `output`.

    A class is made with `args` and its instance called. A coroutine function is awaited on the event loop, so it must
    not compute long. A `labels` attribute of the callable declares the label set. The module may lie beside the
    config file.
    """

    callable: str
    each: bool = False
    args: Mapping[str, Any] = {}

    takes_arrays: ClassVar[bool] = True

    @property
    def rows_together(self) -> bool:
        """False with `each`: a call carries one row."""
        return not self.each

    def open(self, base: str) -> Backend | RemoteBackend:
        """Import the callable.

        Raises:
            ConfigError: it cannot be imported, made or called.
        """
        target = load_object(self.callable, base, "callable")
        if inspect.isclass(target):
            try:
                target = target(**self.args)
            except Exception as error:  # whatever the user's class raises
                raise _refusal("args", f"{self.callable} cannot be made: {_told(error)}") from error
        elif self.args:
            raise _refusal("args", f"{self.callable} is no class, so it takes no args: remove them or name a class")
        if not callable(target):
            raise _refusal("callable", f"{self.callable} is {type(target).__name__}, which cannot be called")
        own = getattr(target, "labels", None)
        labels = settle_labels(self.labels, own, self.callable)
        if inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(type(target).__call__):
            return AsyncCallable(target, labels, self.each)
        return SyncCallable(target, labels, self.each)


class SyncCallable:
    """Calls a plain function."""

    def __init__(self, target: Callable[[Any], Any], labels: tuple[str, ...] | None, each: bool) -> None:
        self.labels = labels
        self._target = target
        self._each = each

    def predict(self, rows: Sequence[Row]) -> Sequence[Reply]:
        """Answer every row.

        Raises:
            ModelError: the callable failed for the whole list, or returned no list of the same length.
        """
        if self._each:
            return [self._one(row) for row in rows]
        try:
            answers = self._target([_copy(row) for row in rows])
        except ModelError:
            raise
        except Exception as error:  # whatever the user's code raises
            raise ModelError("crashed", _told(error)) from error
        return _replies(answers, len(rows), self.labels)

    def close(self) -> None:
        """Call the callable's own `close`, if it has one."""
        close = getattr(self._target, "close", None)
        if callable(close):
            close()

    def _one(self, row: Row) -> Reply:
        try:
            return as_reply(self._target(_copy(row)), self.labels)
        except ModelError as error:
            return error
        except Exception as error:  # whatever the user's code raises
            return ModelError("crashed", _told(error))


class AsyncCallable:
    """Awaits a coroutine function."""

    def __init__(self, target: Callable[[Any], Any], labels: tuple[str, ...] | None, each: bool) -> None:
        self.labels = labels
        self._target = target
        self._each = each

    async def apredict(self, rows: Sequence[Row], timeout_s: float) -> Sequence[Reply]:
        """Answer every row within `timeout_s` seconds.

        Raises:
            ModelError: out of time, or the callable failed for the whole list or returned no list of the same length.
        """
        try:
            async with asyncio.timeout(timeout_s if timeout_s != float("inf") else None):
                if self._each:
                    return list(await asyncio.gather(*(self._one(row) for row in rows)))
                answers = await self._target([_copy(row) for row in rows])
        except TimeoutError:
            raise ModelError("timeout", f"no answer within {timeout_s:.3g} s") from None
        except ModelError:
            raise
        except Exception as error:  # whatever the user's code raises
            raise ModelError("crashed", _told(error)) from error
        return _replies(answers, len(rows), self.labels)

    async def aclose(self) -> None:
        """Await the callable's own `aclose`, if it has one."""
        aclose = getattr(self._target, "aclose", None)
        if callable(aclose):
            await aclose()

    async def _one(self, row: Row) -> Reply:
        try:
            return as_reply(await self._target(_copy(row)), self.labels)
        except ModelError as error:
            return error
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # the last two would end the event loop
            return ModelError("crashed", _told(error))


def _replies(answers: Any, count: int, labels: tuple[str, ...] | None) -> list[Reply]:
    if type(answers) is not list and (isinstance(answers, str | bytes | Mapping) or not hasattr(answers, "__len__")):
        raise ModelError(
            "bad_output",
            f"expected a list of {count} answers, got {type(answers).__name__}; for one row at a time set each: true",
        )
    if len(answers) != count:
        raise ModelError("bad_output", f"expected {count} answers, one a row and in order, got {len(answers)}")
    return [as_reply(answer, labels) for answer in answers]


def _copy(row: Any) -> Any:
    """Return a row that the user's code may change: the next model and the record get it as the client sent it."""
    if isinstance(row, dict):
        return {key: _copy(value) for key, value in row.items()}
    return [_copy(value) for value in row] if type(row) is list else row


def _told(error: BaseException) -> str:
    """What was raised, and the innermost line of the callable's own file that led to it."""
    below = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    own = [(file, line) for file, line in below if file != __file__]
    lines = [line for file, line in own if file == own[0][0]]
    place = f" ({Path(own[0][0]).name}, line {lines[-1]})" if lines else ""
    return f"{type(error).__name__}: {error}{place}"


def _refusal(field: str, message: str) -> ConfigError:
    return ConfigError([Problem(field, None, message)])
