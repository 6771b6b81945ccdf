"""What the metrics page says of answers that are given again."""

from __future__ import annotations

from typing import Final

CACHE_GAUGES: Final[dict[str, tuple[str, str, str]]] = {
    "rheostat_cache_entries": ("gauge", "", "Answers kept in memory, to be given again."),
    "rheostat_cache_bytes": ("gauge", "", "Memory that they take, about."),
    "rheostat_cache_evicted_total": ("counter", "", "Answers that made room for others."),
    "rheostat_cache_shared_up": ("gauge", "", "1, or 0 while the shared cache is left alone because it fails."),
    "rheostat_cache_shared_failures_total": ("counter", "", "Reads and writes of the shared cache that failed."),
}
