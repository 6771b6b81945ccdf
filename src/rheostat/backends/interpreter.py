"""Whether a model lets other threads run while it computes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from rheostat.backends.check import ask, probe_rows
from rheostat.pool.backend import Backend, ModelSettings

TICK_S = 0.001
LATE_S = 0.004
"""A thread that wants to wake up every TICK_S and is later than this waited for the interpreter: one that computes in Python
gives it away only every 5 ms (`sys.getswitchinterval`)."""
HELD, QUIET, TRIES = 0.8, 0.2, 5
"""The share of its time from which on a model is taken to keep others waiting; the share up to which the machine itself may
make threads late, for a measure to count; how often is measured until one does."""


def holds_interpreter(backend: Backend, settings: ModelSettings) -> bool:
    """Return whether the model, asked for its probe rows one by one, keeps other threads waiting nearly all the time. On a
    machine too busy to tell, it does not."""
    rows = probe_rows(backend, settings)
    return holds(lambda: [ask(backend, [row]) for row in rows])


def holds(work: Callable[[], object]) -> bool:
    """Return whether no other thread can run Python for nearly all the time of `work()`, as far as a second thread notices
    that ticks: it is late then, and not while this thread only sleeps for as long."""
    for _ in range(TRIES):
        late, took = _lateness(work)
        noise, slept = _lateness(lambda: time.sleep(took))  # noqa: B023 - called at once
        if noise < QUIET * slept:
            return late > HELD * took
    return False


def _lateness(work: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds of late ticks while `work` ran, and how long it ran."""
    done = threading.Event()
    ready = threading.Event()
    late = [0.0]

    def tick() -> None:
        before = time.monotonic()
        ready.set()
        while not done.is_set():
            time.sleep(TICK_S)
            now = time.monotonic()
            if now - before > LATE_S:
                late[0] += now - before
            before = now

    ticking = threading.Thread(target=tick, name="ticks")
    ticking.start()
    ready.wait()
    began = time.monotonic()
    try:
        work()
    finally:
        took = time.monotonic() - began
        done.set()
        ticking.join()
    return late[0], took
