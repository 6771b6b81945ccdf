"""A model whose rows are prepared first, and how the config says where: in its own call, or beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

from rheostat.errors import ConfigError, ModelError, Problem
from rheostat.pool.backend import Backend, ModelSettings, RemoteBackend, Reply, Row
from rheostat.pool.preparing import Prepare

T = TypeVar("T", bound=Backend | RemoteBackend)


class Made(NamedTuple):
    """A preparation ready for use: with `threads` of its own, or 0 in the model's call. `probes` are rows to try it on."""

    prepare: Prepare
    probes: tuple[Any, ...] | None
    threads: int


def preparation(settings: ModelSettings, backend: object) -> Made | None:
    """Make what the model's `prepare` says; None without it.

    Raises:
        ConfigError: this model cannot have it.
        MissingExtra: a library is not installed.
    """
    wanted = settings.prepare
    if wanted is None:
        return None
    if wanted.image is not None and not settings.takes_arrays:
        raise _refusal("prepare.image", "this backend takes no arrays: remove `prepare`, or use onnx, torch or python")
    if wanted.tokens and not settings.resident:
        raise _refusal("prepare.tokens", "`tokens` keeps a model in memory: remove `prepare`, or remove `resident`")
    if isinstance(backend, RemoteBackend):
        raise _refusal("prepare", "this model is not in this process, and prepares its rows itself: remove it")
    threads = wanted.threads if wanted.threads is not None else int(settings.batch is not None)
    if threads and settings.batch is None:
        told = "rows are prepared while the batch before computes: give the model `batch`, or set 0 (in its own call)"
        raise _refusal("prepare.threads", told)
    return Made(*wanted.open(backend), threads)


def in_call(made: Made | None, backend: T, *, tried: bool = False) -> T | PreparedInCall:
    """Put the preparation into the model's own call, where the config says so or when the model is only `tried`."""
    if made is None or (made.threads and not tried):
        return backend
    assert isinstance(backend, Backend)
    return PreparedInCall(backend, made.prepare, made.probes)


class PreparedInCall:
    """Prepares rows and asks a local model in one call. A row that cannot be prepared fails alone."""

    def __init__(self, inner: Backend, prepare: Prepare, probes: tuple[Any, ...] | None) -> None:
        self.labels = inner.labels
        self.inner = inner
        self.probes = probes
        self._prepare = prepare

    def predict(self, rows: Sequence[Row]) -> Sequence[Reply]:
        """Answer every row.

        Raises:
            ModelError: the whole call failed.
        """
        found = [prepared(self._prepare, row) for row in rows]
        ready = [value for value in found if not isinstance(value, ModelError)]
        replies = list(self.inner.predict(ready)) if ready else []
        if len(replies) != len(ready):
            raise ModelError("bad_output", f"expected {len(ready)} replies, got {len(replies)}")
        answers = iter(replies)
        return [value if isinstance(value, ModelError) else next(answers) for value in found]

    def close(self) -> None:
        """Close the model."""
        self.inner.close()


def prepared(prepare: Prepare, row: Row) -> Any:
    """Return the row as its model takes it, or the ModelError that says why not; never raises."""
    try:
        return prepare(row)
    except ModelError as error:
        return error
    except BaseException as error:  # in a thread of its own: whatever it is, it is this row's failure only
        return ModelError("crashed", f"{type(error).__name__}: {error}")


def _refusal(field: str, message: str) -> ConfigError:
    return ConfigError([Problem(field, None, message)])
