"""The container that this process is in, as Linux tells of it (cgroup v2 or v1)."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Group(NamedTuple):
    """One group of processes: its folder, and which version of the files lies there (1 or 2)."""

    folder: Path
    version: int


def groups(controller: str, root: Path = Path("/")) -> list[Group]:
    """Return the groups that this process is in and `controller` (`memory`, `cpu`) bounds, from its own up to the mount.

    Args:
        root: where `proc` and `sys` are mounted.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mount, version = root / "sys/fs/cgroup", 2
        elif controller in controllers.split(","):
            mount, version = root / "sys/fs/cgroup" / controller, 1
        else:
            continue
        steps = Path(path.lstrip("/"))
        found += [Group(mount / step, version) for step in (steps, *steps.parents)]
    return found
