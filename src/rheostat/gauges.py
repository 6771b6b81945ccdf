"""What the metrics page reads where it is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rheostat.telemetry.allowances import allowance_families
from rheostat.telemetry.batches import batch_families
from rheostat.telemetry.memory import load_numbers
from rheostat.telemetry.preparations import prepare_families
from rheostat.telemetry.workers import worker_families

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rheostat.pool import Model
    from rheostat.pool.residency import Residency
    from rheostat.router import Router
    from rheostat.telemetry.series import Family


def register_gauges(router: Router, residency: Residency) -> None:
    """Tell the router's metrics where its numbers are, by the plan in force whenever the page is asked for."""
    gauge = router.metrics.gauge

    def models(value: Any) -> Any:
        return lambda: {name: value(model) for name, model in router.plan.pool.models.items()}

    def ramp(model: Model) -> float:  # as in the status page: 0 while it may have no traffic
        now = router.clock.monotonic()
        return model.share(now) if model.admits(now) else 0.0

    def budgets(value: Any) -> Any:
        return lambda: {
            spend.name: value(spend)
            for lane in router.plan.lanes.values()
            for spend in lane.spends
            if spend.settings.per == "all"
        }

    states = {"closed": 0.0, "half-open": 1.0, "open": 2.0}
    gauge("rheostat_in_flight", models(lambda model: float(model.in_flight)))
    gauge("rheostat_queue", models(lambda model: float(len(model.waiting))))
    gauge("rheostat_limit", models(lambda model: float(model.limit)))
    gauge("rheostat_overflow_total", models(lambda model: float(model.overflowed)))
    gauge("rheostat_breaker_state", models(lambda model: states[model.breaker.name]))
    gauge("rheostat_ramp", models(ramp))
    gauge("rheostat_healthy", models(lambda model: float(model.health.healthy)))
    gauge("rheostat_retries_refused_total", models(lambda model: float(model.retries_refused)))
    gauge("rheostat_error_rate", models(lambda model: model.error_rate(router.clock.monotonic())))
    gauge("rheostat_memory_bytes", models(lambda model: float(model.bytes)))
    for name, read in load_numbers(residency.tallies).items():
        gauge(name, read)
    router.metrics.include(lambda: batch_families(router.plan.pool.batched))
    router.metrics.include(lambda: prepare_families(router.plan.pool.prepared))
    router.metrics.include(lambda: worker_families(router.plan.pool.workers))

    def allowances() -> Iterator[Family]:
        held = [allowance for lane in router.plan.lanes.values() for allowance in lane.allowances]
        clock = router.clock
        return allowance_families(held, router.engine.allowing.kept, clock.monotonic(), clock.wall())

    router.metrics.include(allowances)
    gauge("rheostat_holds", lambda: float(len(router.engine.holds)))
    if router.completing is not None:
        later = router.completing.later
        gauge("rheostat_results", lambda: later.counts)
        gauge("rheostat_results_refused_total", lambda: later.refused)
    answers, shared = router.caching.answers, router.caching.shared
    gauge("rheostat_cache_entries", lambda: float(len(answers)))
    gauge("rheostat_cache_bytes", lambda: float(answers.bytes))
    gauge("rheostat_cache_evicted_total", lambda: float(answers.evicted))
    if shared is not None:
        gauge("rheostat_cache_shared_up", lambda: float(shared.breaker.name == "closed"))
        gauge("rheostat_cache_shared_failures_total", lambda: float(shared.failures))
    gauge("rheostat_spend_threshold", budgets(router.engine.spends.threshold))
    gauge("rheostat_spend_used", budgets(router.engine.spends.used))
    gauge("rheostat_invalid_confidence_total", models(lambda model: float(model.invalid_confidence)))
    gauge("rheostat_alerts", lambda: router.watch.counts() if router.watch is not None else {})
    gauge("rheostat_records_dropped_total", lambda: router.recorder.stats().dropped)
    gauge("rheostat_records_queued", lambda: {sink.name: float(sink.queued) for sink in router.recorder.stats().sinks})
