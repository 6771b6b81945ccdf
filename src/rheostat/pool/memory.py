"""How much memory there is and how much of it is used, as the system tells; and giving back what was freed."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from rheostat.pool.cgroup import Group, groups
from rheostat.pool.processors import processors
from rheostat.resilience.residency import MemorySettings, Room

_M_MMAP_THRESHOLD = -3  # malloc.h
_M_ARENA_MAX = -8
_LARGE = 2**20
_UNLIMITED = 2**60  # cgroup v1 says "no limit" as a huge number


class Ceiling(NamedTuple):
    """One limit in bytes, what it holds for (`process`, `container` or `machine`), and how to ask how much of it is used."""

    source: str
    limit: int
    used: Callable[[], int]


def process_bytes() -> int:
    """Return the resident memory of this process in bytes; 0 where the system does not tell (only Linux does here)."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def ceilings(settings: MemorySettings, root: Path = Path("/")) -> tuple[Ceiling, ...]:
    """Return what bounds the memory: the container's limit, else the machine's memory, and a size given in the config.

    Args:
        root: where `proc` and `sys` are mounted.

    Raises:
        ValueError: the system does not tell its memory, so a share of it cannot be known.
    """
    around = min((each for each in (container(root), _machine(root)) if each), key=lambda each: each.limit, default=None)
    if not settings.is_share:
        own = Ceiling("process", int(settings.amount), process_bytes)
        return (own,) if around is None else (own, around)
    if around is None:
        raise ValueError("`limit` must be a size such as 4GiB here: this system does not tell how much memory it has")
    return (around._replace(limit=int(around.limit * settings.amount)),)


def room(bounds: tuple[Ceiling, ...], settings: MemorySettings) -> Room:
    """Return the bytes that are free now; where there are several limits, under the tightest."""
    seen = [(each.limit, each.used()) for each in bounds]
    return Room(
        min(limit - used for limit, used in seen),
        min(settings.high * limit - used for limit, used in seen),
        min(settings.low * limit - used for limit, used in seen),
    )


def container(root: Path = Path("/")) -> Ceiling | None:
    """Return the memory limit of the container (cgroup v2 or v1) that this process is in; None when it has none.

    What is used does not count cached files that nobody has touched lately, as in Kubernetes' working set. A limit on a
    group further up holds as well: the tightest counts.
    """
    found = []
    for group in groups("memory", root):
        limit_file, used_file, inactive = _files_of(group)
        try:
            text = (group.folder / limit_file).read_text().strip()
            (group.folder / used_file).read_text()
        except OSError:
            continue
        if text != "max" and int(text) < _UNLIMITED:
            found.append(Ceiling("container", int(text), _group_usage(group.folder, used_file, inactive)))
    return min(found, key=lambda each: each.limit, default=None)


def _files_of(group: Group) -> tuple[str, str, str]:
    """The names of a group's files, and of the line about cached files."""
    if group.version == 2:
        return "memory.max", "memory.current", "inactive_file"
    return "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"


def _group_usage(group: Path, used_file: str, inactive: str) -> Callable[[], int]:
    def used() -> int:
        total = int((group / used_file).read_text())
        for line in (group / "memory.stat").read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == inactive:
                return max(0, total - int(value))
        return total

    return used


def _machine(root: Path) -> Ceiling | None:
    def told() -> dict[str, int]:
        lines = (root / "proc/meminfo").read_text().splitlines()
        return {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}

    try:
        total = told()["MemTotal"]
    except (OSError, KeyError):
        return None

    def used() -> int:
        now = told()
        return total - now["MemAvailable"]

    return Ceiling("machine", total, used)


def settle_heaps() -> None:
    """Have glibc keep no memory of models that were unloaded, from now on: a setting of the whole process.

    Buffers of 1 MiB or more are mapped one by one, so that each is gone when it is freed. Left alone, glibc learns to keep
    them in the heaps of its threads after the first few were freed, and it trims the tops of those heaps neither by itself
    (below 64 MiB each) nor when it is asked to (`malloc_trim`). And there are as many heaps as processors, not eight times
    as many: every model leaves a few small buffers among long-lived ones, and each heap grows by such gaps of its own.
    """
    option = _of_c("mallopt")
    if option is not None:
        option(_M_MMAP_THRESHOLD, _LARGE)
        option(_M_ARENA_MAX, processors())


def give_back(before: int, expected: int) -> int:
    """Return to the system what was freed in this process; return by how many bytes its resident memory is below `before`.

    Without this the C library keeps freed memory for itself. Objects that hold each other are looked for only when less
    than half of the `expected` bytes came back, as that stops every thread for some 50 ms.
    """
    trim()
    if before - process_bytes() < expected / 2:
        gc.collect()
        trim()
    return before - process_bytes()


def trim() -> None:
    """Return to the system what this process has freed and keeps for itself, also on a CUDA device that torch uses."""
    give = _of_c("malloc_trim")
    if give is not None:
        give(0)
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


@cache
def _of_c(name: str) -> Any:
    """A function of the C library, or None: glibc has these, musl has not. Each look for it makes classes that only a
    search for cycles finds again."""
    return getattr(ctypes.CDLL(None), name, None)
