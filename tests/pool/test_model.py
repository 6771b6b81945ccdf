"""A model in service: what calls do to it, and what it says of itself."""

from __future__ import annotations

import logging

import pytest

from rheostat.pool import Model, Pool
from rheostat.resilience.breaker import BreakerSettings
from rheostat.resilience.health import EjectionSettings, HealthSettings
from rheostat.resilience.ramp import RampSettings
from rheostat.testing import scripted_model
from rheostat.types import Failure
from rheostat.types.duration import Duration

ONE = BreakerSettings(failure_threshold=1, success_threshold=1, timeout_seconds=Duration(10.0))
CHECKED = HealthSettings(interval=Duration(1.0), unhealthy=2, healthy=1)


def fail(model: Model, now: float, kind: str = "upstream_error", wait: float | None = None) -> None:
    assert model.begin(now)
    counts = kind not in ("rate_limited", "cancelled")
    model.ended(Failure(kind, f"said {kind}", None, wait), counts, 0.1, now + 0.1)


def answer(model: Model, now: float) -> None:
    assert model.begin(now)
    model.ended(None, False, 0.1, now + 0.1)


@pytest.mark.parametrize("kind", ["rate_limited", "upstream_error"])
def test_a_wait_that_was_asked_for_is_kept(kind: str) -> None:
    model = scripted_model("a")
    fail(model, 0.0, kind, wait=7.0)
    assert not model.begin(7.0)
    assert model.retry_after(2.0) == pytest.approx(5.1)
    assert "left alone" in model.why(2.0)
    answer(model, 7.2)
    assert model.why(7.3) == ""


def test_a_shorter_wait_does_not_shorten_a_longer_one() -> None:
    model = scripted_model("a")
    assert model.begin(0.0)
    assert model.begin(0.0)
    model.ended(Failure("rate_limited", "", None, 20.0), False, 0.1, 0.1)
    model.ended(Failure("rate_limited", "", None, 1.0), False, 0.2, 0.2)
    assert model.parked_until == pytest.approx(20.1)


def test_the_log_says_what_opened_a_breaker(caplog: pytest.LogCaptureFixture) -> None:
    late = BreakerSettings(slow_seconds=Duration(1.0), min_calls=1, timeout_seconds=Duration(5.0))
    for settings, failure in ((ONE, Failure("upstream_error", "it answered 500")), (late, None)):
        model = scripted_model("a", breaker=settings)
        assert model.begin(0.0)
        model.ended(failure, failure is not None, 2.0, 2.0)
        assert model.breaker.name == "open"
    said = [record.getMessage() for record in caplog.records]
    assert said[0].endswith("; the last call: upstream_error, it answered 500")
    assert said[1] == "model a: its breaker is open for 5 s; the last call: an answer took 2 s"


def test_after_its_breaker_closed_a_model_climbs_and_a_failure_halves_its_share() -> None:
    model = scripted_model("a", breaker=ONE, ramp=RampSettings(start=0.1, seconds=Duration(10.0)))
    pool = Pool({"a": model})
    fail(model, 0.0)
    assert (pool.view(1.0)["a"].available, model.status(1.0)["ramp"]) == (False, 0.0)
    assert model.why(1.0) == "its breaker is open"
    assert model.begin(10.5)
    assert "being probed" in model.why(10.5)
    assert not pool.view(10.5)["a"].available
    model.ended(None, False, 0.1, 10.6)
    assert (pool.view(10.6)["a"].ramp, pool.view(10.6)["a"].available) == (0.1, True)
    assert pool.view(15.6)["a"].ramp == pytest.approx(0.5)
    assert pool.view(20.7)["a"].ramp == 1.0

    soft = scripted_model(
        "a", breaker=BreakerSettings(failure_threshold=2, success_threshold=1, timeout_seconds=Duration(1.0))
    )
    fail(soft, 0.0)
    fail(soft, 0.0)
    answer(soft, 2.0)
    assert soft.share(32.1) == pytest.approx(0.5)
    fail(soft, 32.0)
    assert soft.share(32.1) == pytest.approx(0.25)


def test_calls_that_were_cut_off_say_nothing() -> None:
    model = scripted_model("a", breaker=ONE)
    for _ in range(20):
        fail(model, 0.0, "cancelled")
    assert (model.breaker.name, model.breaker.failures, model.error_rate(0.1)) == ("closed", 0, 0.0)


def test_the_error_rate_follows_the_last_calls_and_fades() -> None:
    model = scripted_model("a", breaker=BreakerSettings(failure_threshold=0))
    for number in range(200):
        (fail if number % 4 == 0 else answer)(model, number * 0.1)
    assert model.error_rate(20.0) == pytest.approx(0.25, abs=0.06)
    assert model.error_rate(200.0) < 0.01
    assert Pool({"a": model}).view(20.0)["a"].error_rate == model.error_rate(20.0)


def test_a_model_that_refuses_us_rings_once_a_minute_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    model = scripted_model("a", breaker=BreakerSettings(failure_threshold=0))
    with caplog.at_level(logging.ERROR, "rheostat.pool"):
        for second in range(125):
            fail(model, float(second), "misconfigured")
    assert [record.message.startswith("model a is misconfigured") for record in caplog.records] == [True] * 3
    assert model.status(125.0)["misconfigured"] == "said misconfigured"
    answer(model, 126.0)
    assert model.status(127.0)["misconfigured"] is None


def test_checks_take_a_model_out_and_bring_it_back_under_its_ramp() -> None:
    models = {name: scripted_model(name, health=CHECKED) for name in "ab"}
    pool = Pool(models)
    model = models["a"]
    model.checked("503", 1.0)
    assert pool.view(1.0)["a"].available
    model.checked("503", 2.0)
    model.check_due = 3.0
    assert not pool.view(2.0)["a"].available
    assert not model.begin(2.0)
    assert model.why(2.0) == "it is unhealthy: 2 health checks failed in a row: 503"
    assert model.retry_after(2.0) == 1.0
    status = model.status(2.5)
    assert (status["health"], status["ejected"], status["ramp"], status["unhealthy_for_s"]) == ("unhealthy", True, 0.0, 0.5)
    model.checked(None, 4.0)
    assert (pool.view(4.0)["a"].available, pool.view(4.0)["a"].ramp) == (True, 0.05)


def test_checks_may_not_empty_the_pool_and_an_open_breaker_counts() -> None:
    models = {name: scripted_model(name, health=CHECKED, breaker=ONE) for name in "abc"}
    pool = Pool(models, (), EjectionSettings(max_ejected=0.5))
    for now in (1.0, 2.0, 3.0):
        for model in models.values():
            model.checked("503", now)
    assert [name for name in "abc" if not pool.view(3.0)[name].available] == ["a"]
    assert "too many are out already" in models["b"].why(3.0)
    fail(models["b"], 3.0)  # it is really broken: now it is out, and a, of which only the checks complain, is needed
    assert [name for name in "abc" if not pool.view(3.2)[name].available] == ["b"]
    assert pool.view(3.2)["a"].ramp == 1.0


def test_a_pool_made_anew_keeps_what_is_known_of_its_models() -> None:
    models = {name: scripted_model(name, health=CHECKED) for name in "ab"}
    Pool(models)
    models["a"].checked("503", 1.0)
    models["a"].checked("503", 2.0)
    again = Pool({"a": models["a"], "b": models["b"]})
    assert not again.view(3.0)["a"].available
    alone = Pool({"a": models["a"]})
    assert alone.view(3.0)["a"].available, "a route's last model stays in"


def test_calls_at_a_time_are_bounded_by_the_breaker_where_nothing_else_does() -> None:
    assert scripted_model("a").limit == 1000
    assert scripted_model("a", max_concurrency=3).limit == 3
    assert scripted_model("a", breaker=BreakerSettings(max_concurrent=0)).limit == 0
