"""A day of normal traffic rings nothing; every planted fault rings, soon, and nothing else with it that is not its doing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from msgspec import structs

from rheostat.clock import ManualClock
from rheostat.types import Feedback, RouteRecord
from rheostat.watch import Change, Watch, WatchSettings
from tests.watch.traffic import DAY_S, Traffic

HOUR_S = 3_600.0
FAULT_AT = 12.5 * HOUR_S
START = 1.7e9


def judged(traffic: Traffic, records: Iterable[RouteRecord]) -> Iterator[RouteRecord | Feedback]:
    for number, record in enumerate(records):
        yield record
        if number % 3 == 0:
            yield traffic.feedback(record)


def raised(changes: Iterable[Change]) -> list[tuple[str, str]]:
    return [(each.alert.kind, each.alert.subject) for each in changes if each.what == "raised"]


def test_a_normal_day_rings_nothing() -> None:
    traffic = Traffic(1, rate=1.5)
    changes = Watch().replay(judged(traffic, traffic.records(0.0, DAY_S)))
    assert raised(changes) == []


def planted(name: str, value: object) -> tuple[list[Change], float]:
    """Return the alerts of two hours of which the last half is faulty, and the time of the fault."""
    traffic = Traffic(7)
    before = traffic.records(FAULT_AT - HOUR_S, FAULT_AT)
    watch = Watch()
    assert raised(watch.replay(judged(traffic, before))) == []
    setattr(traffic, name, value)
    after = traffic.records(FAULT_AT, FAULT_AT + HOUR_S / 2)
    return watch.replay(judged(traffic, after)), START + FAULT_AT


@pytest.mark.parametrize(
    ("name", "value", "kinds"),
    [
        ("escalated", 0.08, {("share_drift", "route default, model large")}),
        ("collapse", "corner", {("weight_collapse", "route mixed")}),
        ("collapse", "still", {("weight_collapse", "route mixed")}),
        ("longer", 3.0, {("input_drift", f"route {route}, length of the input") for route in ("default", "mixed")}),
        ("slower", 3.0, {("model_slow", "model large")}),
        ("dearer", 2.5, {("cost_overrun", "route default"), ("cost_overrun", "route mixed")}),
        ("overhead_s", 0.08, {("router_slow", "route default"), ("router_slow", "route mixed")}),
        ("broken", 0.2, {("errors", "route default")}),
        ("full", 0.9, {("overflow", "route default, model large")}),
        ("right", 0.75, {("accuracy", "route default"), ("accuracy", "route mixed")}),
        ("flip_s", 40.0, {("flapping", "route default")}),
    ],
)  # fmt: skip
def test_a_planted_fault_rings_within_the_window(name: str, value: object, kinds: set[tuple[str, str]]) -> None:
    changes, at = planted(name, value)
    found = raised(changes)
    assert kinds <= set(found)
    assert len(found) == len(set(found)), "each thing rings once"
    for change in changes:
        if (change.alert.kind, change.alert.subject) in kinds:
            assert 0.0 < change.alert.since - at <= 330.0  # the window, and the second look
            assert change.alert.advice


def test_a_new_version_that_is_surer_rings_and_names_both_versions() -> None:
    traffic = Traffic(3)
    watch = Watch()
    assert raised(watch.replay(traffic.records(FAULT_AT - HOUR_S, FAULT_AT))) == []
    traffic.version, traffic.unsure = "2", 0.3
    changes = watch.replay(traffic.records(FAULT_AT, FAULT_AT + 600.0))
    told = {each.alert.subject: each.alert for each in changes if each.alert.kind == "confidence_shift"}
    assert set(told) == {"route default, model small", "route mixed, model small"}
    assert "small 2" in told["route default, model small"].text
    assert "version 1" in told["route default, model small"].text
    for alert in watch.ringing():
        watch.accept(alert.id)
    assert raised(watch.replay(traffic.records(FAULT_AT + 600.0, FAULT_AT + 1_200.0))) == []


def test_a_new_version_that_is_as_sure_rings_nothing() -> None:
    traffic = Traffic(4)
    watch = Watch()
    watch.replay(traffic.records(FAULT_AT - HOUR_S, FAULT_AT))
    traffic.version = "2"
    assert raised(watch.replay(traffic.records(FAULT_AT, FAULT_AT + HOUR_S))) == []


def test_what_is_over_ends_by_itself() -> None:
    traffic = Traffic(5)
    watch = Watch()
    watch.replay(traffic.records(FAULT_AT - HOUR_S, FAULT_AT))
    traffic.slower = 3.0
    assert ("model_slow", "model large") in raised(watch.replay(traffic.records(FAULT_AT, FAULT_AT + 600.0)))
    traffic.slower = 1.0
    changes = watch.replay(traffic.records(FAULT_AT + 600.0, FAULT_AT + 1_500.0))
    assert [(each.what, each.alert.kind) for each in changes] == [("ended", "model_slow")]
    assert watch.ringing() == []
    assert watch.ended()[0].ended is not None


def test_what_rings_does_not_become_usual_however_long_it_lasts() -> None:
    traffic = Traffic(6)
    watch = Watch(WatchSettings(usual=HOUR_S))
    watch.replay(traffic.records(FAULT_AT - HOUR_S, FAULT_AT))
    traffic.escalated = 0.08
    changes = watch.replay(traffic.records(FAULT_AT, FAULT_AT + 2.5 * HOUR_S))
    assert ("share_drift", "route default, model large") in raised(changes)
    assert any(each.kind == "share_drift" for each in watch.ringing())


def test_percentiles_of_a_window_without_traffic_are_no_numbers() -> None:
    clock = ManualClock()
    watch = Watch(WatchSettings(window=60.0), clock)

    def requests(*milliseconds: int) -> list[RouteRecord]:
        base = RouteRecord(id="r", wall=0.0, route="default", status="ok")
        return [structs.replace(base, elapsed_s=each / 1000) for each in milliseconds]

    clock.advance(1.0)
    watch.write(requests(*range(1, 101)))
    clock.advance(29.0)
    found = watch.percentiles()["route", "default"]
    assert found.count == 100
    assert found.p50 is not None and 0.050 <= found.p50 <= 0.051  # noqa: PT018
    assert found.p99 is not None and 0.099 <= found.p99 <= 0.100  # noqa: PT018
    clock.advance(45.0)
    found = watch.percentiles()["route", "default"]
    assert (found.count, found.p50, found.p95, found.p99) == (0, None, None, None)
    clock.advance(60.0)
    watch.write(requests(5))
    found = watch.percentiles()["route", "default"]
    assert found.count == 1
    assert found.p50 == found.p99 == pytest.approx(0.005, rel=0.005)


def test_of_many_records_at_once_some_are_looked_at_and_shares_hold() -> None:
    clock = ManualClock()
    watch = Watch(WatchSettings(window=60.0, usual=600.0), clock)
    traffic = Traffic(8, rate=8_000.0)
    for second in range(70):
        clock.advance(1.0)
        watch.write(list(traffic.records(FAULT_AT + second, FAULT_AT + second + 0.25)))
    found = watch.percentiles()["route", "default"]
    assert 60 * 100 < found.count < 60 * 600
    assert watch.ringing() == []
