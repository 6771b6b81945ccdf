import math
import random
import string

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from rheostat.telemetry.metrics import Metrics
from rheostat.telemetry.series import Histogram, histogram_samples
from rheostat.types import Attempt, Failure, Outcome


def read(page):
    """Parse a page into {(name, labels): value}."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


@pytest.fixture
def metrics():
    return Metrics(routes=["default", "vip"], models=["fast", "large"], version="0.1.0")


def test_a_record_is_counted_everywhere(metrics, make_record):
    tries = (Attempt("large", 0.0, 0.3, Failure("timeout")), Attempt("large", 0.3, 0.02))
    cut = Failure("cancelled", "cut off")
    outcomes = (
        Outcome("large", None, None, tries, "large", "v2", 1),
        Outcome("fast", None, cut, (Attempt("fast", 0.0, 0.3, cut),), "fast", "v1"),
    )
    metrics.observe(make_record(1))
    metrics.observe(
        make_record(
            2, route="vip", status="degraded", level=2, fallback_reason="timeout", outcomes=outcomes, cost=40.5,
            weights={"fast": 0.25, "large": 0.75}, selected_model="large", cancelled=("fast",), elapsed_s=0.3,
        )
    )  # fmt: skip
    page = read(metrics.render())

    def value(name, **labels):
        return page[name, tuple(sorted(labels.items()))]

    assert value("rheostat_requests_total", route="default", status="ok") == 1
    assert value("rheostat_requests_total", route="vip", status="degraded") == 1
    assert value("rheostat_request_seconds_count", route="vip") == 1
    assert value("rheostat_request_seconds_sum", route="vip") == 0.3
    assert value("rheostat_request_seconds_bucket", route="vip", le="0.25") == 0
    assert value("rheostat_request_seconds_bucket", route="vip", le="0.5") == 1
    assert value("rheostat_overhead_seconds_bucket", route="default", le="0.0001") == 1
    assert value("rheostat_decision_seconds_bucket", route="default", le="2.5e-05") == 0
    assert value("rheostat_decision_seconds_bucket", route="default", le="5e-05") == 1
    assert value("rheostat_model_calls_total", model="large", version="v2", result="timeout") == 1
    assert value("rheostat_model_calls_total", model="large", version="v2", result="ok") == 1
    assert value("rheostat_model_calls_total", model="fast", version="v1", result="cancelled") == 1
    fast = value("rheostat_model_seconds_count", model="fast")
    assert fast == value("rheostat_model_calls_total", model="fast", version="1", result="ok")  # its time was cut short
    assert value("rheostat_model_seconds_count", model="large") == 2
    assert value("rheostat_selected_total", route="vip", model="large") == 1
    assert value("rheostat_route_type_total", route="default", type="cascade") == 1
    assert value("rheostat_fallback_total", level="2", reason="timeout") == 1
    assert value("rheostat_weight_bucket", route="vip", model="fast", le="0.2") == 0
    assert value("rheostat_weight_bucket", route="vip", model="fast", le="0.3") == 1
    assert value("rheostat_cost_total", route="vip") == 40.5
    assert value("rheostat_build_info", version="0.1.0") == 1
    assert value("process_resident_memory_bytes") > 1_000_000


def test_events_and_gauges(metrics):
    metrics.count_feedback()
    metrics.count_reload("ok")
    metrics.count_reload("failed")
    metrics.count_router_error("signal")
    metrics.gauge("rheostat_invalid_confidence_total", lambda: {"fast": 1})
    metrics.gauge("rheostat_in_flight", lambda: {"fast": 3, "stranger": 1, "another": 1})
    metrics.gauge("rheostat_holds", lambda: {"": 7})
    metrics.gauge("rheostat_records_dropped_total", lambda: {"queue_full": 5})
    metrics.gauge("rheostat_queue", lambda: {"fast": 1 / 0})
    page = read(metrics.render())
    assert page["rheostat_feedback_total", ()] == 1
    assert page["rheostat_reloads_total", (("result", "failed"),)] == 1
    assert page["rheostat_router_errors_total", (("reason", "signal"),)] == 1
    assert page["rheostat_invalid_confidence_total", (("model", "fast"),)] == 1
    assert page["rheostat_in_flight", (("model", "fast"),)] == 3
    assert page["rheostat_in_flight", (("model", "other"),)] == 2
    assert page["rheostat_holds", ()] == 7
    assert page["rheostat_records_dropped_total", (("reason", "queue_full"),)] == 5
    assert not [key for key in page if key[0] == "rheostat_queue"]
    with pytest.raises(ValueError, match="known: rheostat_alerts, rheostat_breaker_state"):
        metrics.gauge("rheostat_typo", dict)


def test_the_preset_and_the_routers_own_failures_have_names(metrics, make_record):
    why = "router_unavailable: the policy raised KeyError('abc')"
    metrics.observe(make_record(1, level=5, fallback_reason=why, selected_model="preset"))
    page = read(metrics.render())
    assert page["rheostat_fallback_total", (("level", "5"), ("reason", "router_unavailable"))] == 1
    assert page["rheostat_selected_total", (("model", "preset"), ("route", "default"))] == 1


def test_clients_cannot_create_series(metrics, make_record):
    draw = random.Random(7)

    def junk():
        return "".join(draw.choices(string.printable, k=12))

    for number in range(100):
        metrics.observe(make_record(number))
    start = len(metrics.render().splitlines())
    held = len(metrics._calls)
    for number in range(10_000):
        name = junk() if number else "x" * 1_000_000
        tries = (Attempt(name, 0.0, 0.1), Attempt("fast", 0.0, 0.1, Failure("timeout")))
        metrics.observe(
            make_record(
                number, route=junk(), status=junk(), route_type=junk(), selected_model=name, weights={name: 1.0}, level=9,
                fallback_reason=junk(), outcomes=(Outcome(name, None, None, tries, name, junk()),
                                                  Outcome("fast", None, None, tries, "fast", junk())),
            )
        )  # fmt: skip
        metrics.count_router_error(junk())
    page = metrics.render()
    grown = len(page.splitlines()) - start
    assert 60 < grown < 250
    assert len(metrics._calls) - held < 20
    values = read(page)
    assert values["rheostat_requests_total", (("route", "default"), ("status", "ok"))] == 100
    assert values["rheostat_requests_total", (("route", "other"), ("status", "other"))] == 10_000
    assert values["rheostat_selected_total", (("model", "fast"), ("route", "default"))] == 100
    assert max(len(text) for _, labels in values for _, text in labels) <= 64


def test_label_values_are_escaped_and_cut(make_record):
    names = ['a"b\\c\nd', "n" * 100, "\x00\ud800", "模型"]
    metrics = Metrics(routes=names)
    for name in names:
        metrics.observe(make_record(route=name))
        metrics.observe(make_record(route=name))
    page = read(metrics.render())
    counted = {dict(labels)["route"]: value for (name, labels), value in page.items() if name == "rheostat_requests_total"}
    assert counted == {'a"b\\c\nd': 2, "n" * 64: 2, "␀\ufffd": 2, "模型": 2}


def test_counters_survive_a_reload(metrics, make_record):
    metrics.observe(make_record(1))
    metrics.observe(make_record(2, route="new"))
    metrics.allow(routes=["new"], models=["huge"])
    metrics.observe(make_record(3, route="new", selected_model="huge"))
    page = read(metrics.render())
    for route in ("default", "other", "new"):
        assert page["rheostat_requests_total", (("route", route), ("status", "ok"))] == 1
    assert page["rheostat_selected_total", (("model", "huge"), ("route", "new"))] == 1


def test_wrong_numbers_do_not_spoil_a_sum():
    cell = Histogram((0.1, 1.0))
    for value in (math.nan, math.inf, -5.0, 0.5, 1.0, 2.0):
        cell.observe(value)
    samples = {(sample.suffix, *dict(sample.labels).values()): sample.value for sample in histogram_samples((), {(): cell})}
    assert samples[("_sum",)] == 3.5
    assert samples[("_count",)] == 6
    assert [samples["_bucket", le] for le in ("0.1", "1", "+Inf")] == [3, 5, 6]


def test_weights_of_nan_are_no_trouble(metrics, make_record):
    metrics.observe(make_record(1, weights={"fast": math.nan}, cost=math.nan, elapsed_s=-1.0))
    assert b"NaN" not in metrics.render()


def test_it_registers_with_prometheus_client(metrics, make_record):
    metrics.observe(make_record(1))
    registry = CollectorRegistry()
    registry.register(metrics)
    theirs, ours = read(generate_latest(registry)), read(metrics.render())
    moving = ("process_",)
    assert {key: value for key, value in theirs.items() if not key[0].startswith(moving)} == {
        key: value for key, value in ours.items() if not key[0].startswith(moving)
    }
