"""Code of the user that misbehaves, and models that ask for peace: the request is answered all the same."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import Struct

from rheostat.engine.journey import Journey, Route
from rheostat.errors import ModelError, NoAnswer
from rheostat.pool import Model, ModelSettings
from rheostat.resilience.ladder import FallbackSettings, Link
from rheostat.testing import Act, scripted_model
from rheostat.types import Answer, Call, Context, Outcome, Prediction, Request
from tests.engine.test_engine import BROKEN, SURE, Bench

TOO_LARGE = Act(ModelError("input_too_large", "longer than 512 tokens"), 0.1)


def limited(wait_s: float | None) -> Act:
    return Act(ModelError("rate_limited", "429", upstream_status=429, retry_after_s=wait_s), 0.1)


def test_a_rate_limited_model_is_left_alone_for_the_time_it_asked() -> None:
    models = {"a": scripted_model("a", limited(30.0), SURE), "b": scripted_model("b", SURE)}
    bench = Bench("a", models, retry=2)

    async def every_second() -> list[str]:
        answered = []
        for number in range(40):
            served = await bench.one(str(number), {})
            answered.append(served.record.selected_model)
            await asyncio.sleep(0.95)
        return answered

    try:
        answered = bench.loop.run_until_complete(every_second())
    finally:
        bench.loop.close()
    assert answered == ["b"] * 29 + ["a"] * 11
    assert bench.backend("a").calls == 12
    bench.assert_clean()


def test_the_time_that_is_left_is_told_and_harms_no_breaker() -> None:
    bench = Bench("a", {"a": scripted_model("a", limited(30.0))}, retry=2)
    first, second = bench.run({}, {})
    for served, wait in ((first, 30.0), (second, 30.0)):
        assert isinstance(served.error, NoAnswer)
        assert served.error.http_status == 503
        assert served.error.retry_after_s == pytest.approx(wait)
    assert second.record.outcomes[0].failure is not None
    assert "left alone" in second.record.outcomes[0].failure.message
    assert bench.backend("a").calls == 1
    assert bench.pool["a"].breaker.name == "closed"


@pytest.mark.parametrize("wait_s", [None, 0.0])
def test_no_time_asked_for_means_no_pause(wait_s: float | None) -> None:
    bench = Bench("a", {"a": scripted_model("a", limited(wait_s), SURE)}, retry=0)
    assert [served.record.status for served in bench.run({}, {})] == ["error", "ok"]


def test_an_input_too_large_for_every_model_is_the_clients_to_shorten() -> None:
    bench = Bench("a", {"a": scripted_model("a", TOO_LARGE), "b": scripted_model("b", TOO_LARGE)}, retry=2)
    (served,) = bench.run()
    assert isinstance(served.error, ModelError)
    assert (served.error.kind, served.record.status) == ("input_too_large", "rejected")
    assert [bench.backend(name).calls for name in "ab"] == [1, 1]


def test_a_small_fallback_does_not_hide_the_true_reason() -> None:
    bench = Bench("a", {"a": scripted_model("a", limited(7.0)), "b": scripted_model("b", TOO_LARGE)}, retry=0)
    (served,) = bench.run()
    assert isinstance(served.error, NoAnswer)
    assert (served.error.http_status, served.error.retry_after_s) == (503, 7.0)


def test_the_error_names_the_peer_beside_the_model_it_stood_in_for() -> None:
    models = {"a": scripted_model("a", BROKEN, peers=("b",)), "b": scripted_model("b", limited(1.0))}
    (served,) = Bench("a", models, retry=1).run()
    assert str(served.error) == "no model could answer (a: upstream_error (2 times); b: rate_limited 429, again in 1.0 s)"


class Stubborn(Struct, frozen=True):
    """Says, or raises, whatever it was given."""

    said: Any

    def models(self) -> tuple[str, ...]:
        return ("a",)

    def decide(self, ctx: Context, history: tuple[Outcome, ...]) -> Any:  # noqa: ARG002
        if isinstance(self.said, BaseException):
            raise self.said
        return self.said


@pytest.mark.parametrize(
    "said",
    [
        SystemExit(3),
        asyncio.CancelledError(),
        None,
        Call((), "nobody"),
        Call(("a",), None),  # type: ignore[arg-type]
        Call(("a",), "why", 7),  # type: ignore[arg-type]
        Answer({"a": float("nan")}, "why"),
        Answer({"a": -1.0, "b": 2.0}, "why"),
        Answer({"a": float("inf")}, "why"),
        Answer({"a": 1.0}, b"why"),  # type: ignore[arg-type]
    ],
)
def test_a_policy_that_talks_nonsense_is_replaced_by_the_default(said: Any) -> None:
    route = Route(policy=Stubborn(said), fallback=FallbackSettings(), links={"a": Link()}, default="a")
    journey = Journey(route, Context(Request(id="r", data="x")))
    assert journey.start(0.0) == ("a",)
    journey.arrived(Outcome("a", Prediction("yes", 0.9), served_by="a"), 0.1)
    assert journey.ending is not None
    assert journey.ending.prediction == Prediction("yes", 0.9)
    assert journey.ending.fallback_reason.startswith("router_unavailable: ")


class Quits:
    """A local backend that leaves the process, or tries to."""

    labels = None

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def predict(self, rows: Any) -> Any:  # noqa: ARG002
        raise self.error

    def close(self) -> None: ...


class QuitsLater(Quits):
    """The same on the event loop."""

    async def apredict(self, rows: Any, timeout_s: float) -> Any:  # noqa: ARG002
        raise self.error

    async def aclose(self) -> None: ...


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError(), BaseException("odd")])
@pytest.mark.parametrize("kind", [Quits, QuitsLater])
def test_a_model_that_quits_fails_its_own_call_only(kind: type[Quits], error: BaseException) -> None:
    models = {"a": Model("a", ModelSettings(run="inline"), kind(error)), "b": scripted_model("b", SURE)}
    bench = Bench("a", models, retry=1)
    (served,) = bench.run()
    assert served.record.selected_model == "b"
    failure = served.record.outcomes[0].failure
    assert failure is not None
    assert failure.kind == "crashed"
    assert bench.pool["a"].in_flight == 0
