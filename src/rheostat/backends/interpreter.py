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
HELD = 0.8
"""The share of its time from which on a model is taken to keep others waiting."""


def holds_interpreter(backend: Backend, settings: ModelSettings) -> bool:
    """Return whether the model, asked for its probe rows one by one, keeps other threads waiting nearly all the time; it is
    measured twice, as anything else that runs on the machine looks the same."""
    rows = probe_rows(backend, settings)
    return all(held_share(lambda: [ask(backend, [row]) for row in rows]) > HELD for _ in range(2))


def held_share(work: Callable[[], object]) -> float:
    """Return the share of the time of `work()`, in [0, 1], in which no other thread could run Python, as far as a second
    thread that ticks noticed it; what it notices while this one only sleeps for as long is taken off, as that is the
    machine's.
    """
    seen, took = _lateness(work)
    noise, _ = _lateness(lambda: time.sleep(took))
    return min(1.0, max(0.0, seen - noise) / took) if took > 0.0 else 0.0


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
