"""The numbers of models whose rows are prepared beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rheostat.pool.prepared_beside import PreparedBeside
from rheostat.telemetry.series import Family, counter_samples

Cells = dict[tuple[str, ...], float]


def prepare_families(models: Mapping[str, PreparedBeside]) -> Iterator[Family]:
    """Yield what became of the rows, how many wait, and how long one takes, by model."""
    rows: Cells = {}
    for name, each in models.items():
        rows[name, "ready"] = float(each.done - each.refused)
        rows[name, "refused"] = float(each.refused)
        rows[name, "late"] = float(each.dropped)
    text = "Rows that were prepared beside a model: ready, refused (the client's fault), or late (not prepared)."
    yield Family("rheostat_prepare_rows_total", "counter", text, counter_samples(("model", "result"), rows))
    queue: Cells = {(name,): float(each.waiting) for name, each in models.items()}
    yield Family("rheostat_prepare_queue", "gauge", "Rows that wait unprepared.", counter_samples(("model",), queue))
    taken: Cells = {(name,): each.row_s for name, each in models.items()}
    text = "What preparing one row takes, running mean."
    yield Family("rheostat_prepare_seconds", "gauge", text, counter_samples(("model",), taken))
