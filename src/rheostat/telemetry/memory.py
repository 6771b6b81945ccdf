"""The numbers of what is in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from rheostat.pool.on_demand import Tally

MEMORY_GAUGES: Final[dict[str, tuple[str, str, str]]] = {
    "rheostat_memory_bytes": (
        "gauge",
        "model",
        "What a model takes in memory, measured when it was loaded; 0: out.",
    ),
    "rheostat_loads_total": ("counter", "model", "Loads of a model with `resident: false`."),
    "rheostat_load_failures_total": ("counter", "model", "Loads that failed."),
    "rheostat_load_seconds_total": ("counter", "model", "Time of all loads."),
    "rheostat_load_waits_total": ("counter", "model", "Calls that waited for a load."),
    "rheostat_load_wait_seconds_total": ("counter", "model", "Time that calls waited for loads."),
    "rheostat_evictions_total": ("counter", "model", "Times a model was unloaded to make room."),
}
"""As `metrics.GAUGES`, of which they are part."""
_TALLIED: Final = {
    "rheostat_loads_total": "loads",
    "rheostat_load_failures_total": "failures",
    "rheostat_load_seconds_total": "load_s",
    "rheostat_load_waits_total": "waits",
    "rheostat_load_wait_seconds_total": "wait_s",
    "rheostat_evictions_total": "evictions",
}


def load_numbers(tallies: Mapping[str, Tally]) -> dict[str, Callable[[], Mapping[str, float]]]:
    """Return how the numbers of `MEMORY_GAUGES` are read that were counted by model since the start."""

    def counted(field: str) -> Callable[[], Mapping[str, float]]:
        return lambda: {name: float(getattr(tally, field)) for name, tally in list(tallies.items())}

    return {name: counted(field) for name, field in _TALLIED.items()}
