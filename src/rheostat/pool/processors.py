"""How many processors this process may use, which in a container is less than the machine has."""

from __future__ import annotations

import os
from math import ceil
from pathlib import Path

from rheostat.pool.cgroup import Group, groups


def processors(root: Path = Path("/")) -> int:
    """Return how many processors may be used: those of the process's CPU set, and no more than the time that its container
    is given (`docker run --cpus 2`, a Kubernetes limit), rounded up.

    Args:
        root: where `proc` and `sys` are mounted.
    """
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 2
    quotas = [quota for group in groups("cpu", root) if (quota := _quota(group)) is not None]
    return max(1, min([here, *(ceil(quota) for quota in quotas)]))


def _quota(group: Group) -> float | None:
    try:
        if group.version == 2:
            quota, period = (group.folder / "cpu.max").read_text().split()
        else:
            quota = (group.folder / "cpu.cfs_quota_us").read_text().strip()
            period = (group.folder / "cpu.cfs_period_us").read_text().strip()
        return None if quota in ("max", "-1") else int(quota) / int(period)
    except (OSError, ValueError):
        return None
