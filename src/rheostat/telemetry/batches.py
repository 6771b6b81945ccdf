"""The numbers of batched models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rheostat.pool.batch_tally import ROWS, WAIT_SECONDS
from rheostat.pool.batching import Batched
from rheostat.telemetry.series import Family, Histogram, counter_samples, histogram_samples

_COUNTERS: Final = {
    "rheostat_batch_executions_total": ("executions", "Calls to a batched model."),
    "rheostat_batch_inferences_total": ("inferences", "Rows that went through it; by its executions, the mean batch."),
    "rheostat_batch_dropped_total": ("dropped", "Rows that could not be answered in time and made room for others."),
    "rheostat_batch_isolated_total": ("isolated", "Further calls that found the rows to blame in calls that failed."),
}
_GAUGES: Final = {
    "rheostat_batch_queue": ("queued", "Rows that wait for their call now."),
    "rheostat_batch_limit": ("limit", "The most rows of the next call, as memory and the latency target allow."),
}


def batch_families(models: Mapping[str, Batched]) -> Iterator[Family]:
    """Yield what batched models have counted, by model."""
    for name, (field, text) in _COUNTERS.items():
        yield _counter(name, "counter", text, {model: getattr(batched.tally, field) for model, batched in models.items()})
    for name, (field, text) in _GAUGES.items():
        yield _counter(name, "gauge", text, {model: getattr(batched, field) for model, batched in models.items()})
    reasons: dict[tuple[str, ...], float] = {
        (model, reason): float(count)
        for model, batched in models.items()
        for reason, count in list(batched.tally.reasons.items())
    }
    text = "Batches by why they went: full, target, deadline, waited, alone, enough."
    yield Family("rheostat_batch_dispatch_total", "counter", text, counter_samples(("model", "reason"), reasons))
    yield _histogram("rheostat_batch_rows", "Rows of a batch.", {
        model: _cell(ROWS, batched.tally.rows, batched.tally.rows_sum) for model, batched in models.items()
    })  # fmt: skip
    yield _histogram("rheostat_batch_wait_seconds", "Time that a row waited for its batch to go.", {
        model: _cell(WAIT_SECONDS, batched.tally.waits, batched.tally.waits_sum) for model, batched in models.items()
    })  # fmt: skip


def _counter(name: str, kind: str, text: str, counts: Mapping[str, float]) -> Family:
    return Family(name, kind, text, counter_samples(("model",), {(model,): count for model, count in counts.items()}))


def _cell(bounds: Sequence[float], counts: Sequence[int], total: float) -> Histogram:
    cell = Histogram(bounds)
    cell.counts, cell.sum = list(counts), total
    return cell


def _histogram(name: str, text: str, cells: Mapping[str, Histogram]) -> Family:
    return Family(name, "histogram", text, histogram_samples(("model",), {(model,): cell for model, cell in cells.items()}))
