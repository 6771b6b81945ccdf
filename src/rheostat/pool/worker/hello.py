"""What a worker process is told first: which model to open, and under which limits."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import msgspec
from msgspec import Struct, structs

from rheostat.errors import ConfigError, Problem
from rheostat.pool.backend import ModelSettings
from rheostat.pool.worker.limits import THREAD_VARIABLES
from rheostat.pool.worker.settings import WorkerSettings
from rheostat.types.duration import Duration


class Hello(Struct, frozen=True, kw_only=True):
    """`kind` is the class of the settings (`module:name`), `written` the settings as plain values. With `brief` the model
    was tried before, so one look at its probes is enough."""

    name: str
    kind: str
    written: dict[str, Any]
    worker: WorkerSettings
    base: str
    path: list[str]
    brief: bool = False

    @property
    def threads(self) -> int:
        """How many threads the numeric libraries may have."""
        return self.worker.threads or int(self.written.get("threads", 1))

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that must be set before the process begins."""
        return {**dict.fromkeys(THREAD_VARIABLES, str(self.threads)), "TOKENIZERS_PARALLELISM": "false"}

    @property
    def settings(self) -> ModelSettings:
        """The model's settings, with the threads that it may have here."""
        module, _, name = self.kind.partition(":")
        made: ModelSettings = msgspec.convert(self.written, getattr(import_module(module), name), dec_hook=_read)
        if self.worker.threads is not None and hasattr(made, "threads"):
            made = structs.replace(made, threads=self.worker.threads)
        return made

    def message(self, brief: bool) -> Any:
        """Return it as plain values."""
        return msgspec.to_builtins(structs.replace(self, brief=brief), enc_hook=_written)


def hello(name: str, settings: ModelSettings, worker: WorkerSettings, base: str) -> Hello:
    """Return what the processes of this model are told; every value of the settings goes along.

    Raises:
        ConfigError: one of them has no form between processes.
    """
    written = {}
    for field in settings.__struct_fields__:
        try:
            written[field] = msgspec.to_builtins(getattr(settings, field), enc_hook=_written)
        except (NotImplementedError, TypeError) as error:
            raise ConfigError([Problem(field, None, f"{error}: remove `workers` and `run: process`")]) from error
    kind = f"{type(settings).__module__}:{type(settings).__qualname__}"
    return Hello(name=name, kind=kind, written=written, worker=worker, base=base, path=list(sys.path))


def heard(message: Any) -> Hello:
    """Return what the plain values say."""
    return msgspec.convert(message, Hello, dec_hook=_read)


def _written(value: Any) -> Any:
    if isinstance(value, Duration):
        return float(value)
    raise NotImplementedError(f"settings of type {type(value).__name__} cannot be told to a process")


def _read(kind: type, value: Any) -> Any:
    if kind is Duration:
        return Duration(value)
    raise NotImplementedError(f"settings of type {kind.__name__} cannot be told to a process")
