"""What one process may take, set by the process itself before it loads anything."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS",
                    "VECLIB_MAXIMUM_THREADS", "RAYON_NUM_THREADS")  # fmt: skip
"""Where numeric libraries read how many threads they may have; they read it when they are loaded."""


def die_with(parent: int) -> None:
    """End at once when the process `parent` is gone, even in the middle of a computation (Linux; elsewhere after it)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it went before we asked
        os._exit(1)


def limit_cpus(cpus: Sequence[int]) -> None:
    """Run on these CPUs only.

    Raises:
        ValueError: this machine or container does not give one of them.
    """
    if not hasattr(os, "sched_setaffinity"):
        raise ValueError("`workers.cpus` is not known on this system; remove it")
    allowed = os.sched_getaffinity(0)
    missing = sorted(set(cpus) - allowed)
    if missing:
        has = ", ".join(map(str, sorted(allowed)))
        raise ValueError(f"`workers.cpus` names {', '.join(map(str, missing))}; this process may use {has}")
    os.sched_setaffinity(0, cpus)


def limit_memory(ceiling: int) -> None:
    """Let every allocation fail that would take what this process holds for itself over `ceiling` bytes.

    `RLIMIT_DATA` counts private writable memory (Linux 4.7 and later), not mapped files and not address space that is
    only reserved, so that onnxruntime and OpenBLAS run under it; with `RLIMIT_AS` they do not start.

    Raises:
        ValueError: the system allows less.
    """
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY and ceiling > hard:
        raise ValueError(f"`workers.memory`: this system allows a process {hard} bytes")
    resource.setrlimit(resource.RLIMIT_DATA, (ceiling, ceiling))


def held_bytes(pid: int) -> int:
    """Return the memory that a process holds for itself in bytes; 0 where that is not known."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            _, resident, shared, *_ = file.read().split()
    except OSError:
        return 0
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")


def limited_bytes() -> int:
    """Return what this process has of that which `limit_memory` limits, in bytes; 0 where that is not known."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[5]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
