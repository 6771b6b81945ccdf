"""A worker process: it opens one model and answers for it. Started by `rheostat.pool.worker`, not by people."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import socket
import sys

import msgspec

from rheostat.errors import ConfigError, ContractError, Problem, RheostatError
from rheostat.pool.backend import Backend
from rheostat.pool.worker import limits
from rheostat.pool.worker.arena import Arena
from rheostat.pool.worker.hello import Hello, heard
from rheostat.pool.worker.message import Reader, Ready, Refused, Writer
from rheostat.pool.worker.serving import Line, serve


def main() -> None:
    """Serve the gateway at the other end of a socket: `python -m rheostat.worker SOCKET ARENA PARENT`, all numbers.

    The process outlives no gateway. It leaves the signals of an orderly stop to that, which lets it finish first.
    """
    at, arena_at, parent = map(int, sys.argv[1:4])
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    faulthandler.enable()
    limits.die_with(parent)
    line = Line(socket.socket(fileno=at))
    arena = None if arena_at < 0 else Arena(arena_at, writable=False)
    writer = Writer()
    first = line.receive()
    if first is None:
        return
    told = heard(msgspec.msgpack.decode(first[1]))
    try:
        _limited(told)
        backend, said = _opened(told)
    except BaseException as error:  # whatever opening a model raises, the gateway has to hear of it
        line.send(writer.object(_refused(error)))
        return
    line.send(writer.object(said))
    serve(line, backend, Reader(arena), writer, told.worker.memory_bytes, limits.limited_bytes)
    backend.close()


def _limited(told: Hello) -> None:
    worker = told.worker
    sys.path[:] = told.path
    if worker.nice:
        os.nice(worker.nice)
    try:
        if worker.cpus:
            limits.limit_cpus(worker.cpus)
        if worker.memory_bytes:
            limits.limit_memory(worker.memory_bytes)
    except ValueError as error:
        raise ContractError(str(error)) from error


def _opened(told: Hello) -> tuple[Backend, Ready]:
    from rheostat.backends import check_contract, warm_up
    from rheostat.pool.prepared import in_call, preparation

    settings = told.settings
    backend = settings.open(told.base)
    if not isinstance(backend, Backend):
        said = "this model computes elsewhere or on the event loop, not in a process: remove it, and `run: process`"
        raise ConfigError([Problem("workers", None, said)])
    made = preparation(settings, backend)
    backend = in_call(None if made is None else made._replace(threads=0), backend)
    if told.brief:
        warm_up(told.name, backend, settings)
        return backend, Ready(backend.labels)
    found = check_contract(told.name, backend, settings)
    code = _code(told.base)
    return backend, Ready(backend.labels, found.rows, found.row_s, found.slowest_s, found.skipped, code)


def _code(base: str) -> dict[str, tuple[int, int, int]]:
    """Return the files under the config's folder that modules were imported from, and the state they are in."""
    found: dict[str, tuple[int, int, int]] = {}
    folder = os.path.join(os.path.abspath(base), "")
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str) and path.startswith(folder) and "site-packages" not in path:
            with contextlib.suppress(OSError):
                stat = os.stat(path)
                found[path] = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
    return found


def _refused(error: BaseException) -> Refused:
    if isinstance(error, ConfigError):
        return Refused("config", str(error), tuple((problem.path, problem.message) for problem in error.problems))
    if isinstance(error, RheostatError):
        return Refused("contract", str(error))
    if isinstance(error, MemoryError):
        return Refused("contract", "it does not fit under `workers.memory`: raise it")
    return Refused("contract", f"opening it failed: {type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
