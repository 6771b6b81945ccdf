"""Who may be asked, what it may cost, and whose answer counts for whom."""

from __future__ import annotations

from rheostat.engine.journey import Journey, Route
from rheostat.policies import Policy
from rheostat.policies.parse import parse_policy
from rheostat.resilience.ladder import FallbackSettings, Link
from rheostat.types import Attempt, Context, Failure, ModelView, Outcome, Prediction, Request


def policy(said: object) -> Policy:
    return parse_policy(said)


def journey(
    links: dict[str, Link], said: object, fallback: FallbackSettings, max_cost: float = float("inf"), **ramps: float
) -> Journey:
    route = Route(policy=policy(said), fallback=fallback, links=links, default=fallback.default or next(iter(links)))
    view = {name: ModelView(name, ramp=ramps.get(name, 1.0)) for name in links}
    return Journey(route, Context(Request(id="r", data="x", max_cost=max_cost), {}, view))


def failed(model: str, cost: float, kind: str = "timeout") -> Outcome:
    failure = Failure(kind, "planted")
    return Outcome(model, failure=failure, attempts=(Attempt(model, 0.0, 0.1, failure),), served_by=model, cost=cost)


def said(model: str, label: str, cost: float = 1.0) -> Outcome:
    attempts = (Attempt(model, 0.0, 0.1, None),)
    return Outcome(model, Prediction(label, 0.9), attempts=attempts, served_by=model, cost=cost)


def test_a_model_spared_by_its_ramp_is_not_asked_when_nothing_is_left_to_pay_for_it() -> None:
    links = {"b": Link(cost=2.0), "a": Link(cost=1.0)}
    one = journey(links, {"cascade": {"stages": ["a", "b"], "threshold": 0.9}}, FallbackSettings(lighter=False), 2.0, a=1e-9)
    assert one.start(0.0) == ("b",)
    assert one.arrived(failed("b", 2.0), 0.1) == ()
    assert one.ending is not None
    assert "a" not in one.started


def test_it_is_asked_before_its_turn_when_the_request_can_pay() -> None:
    links = {"b": Link(cost=2.0), "a": Link(cost=1.0)}
    one = journey(links, {"cascade": {"stages": ["a", "b"], "threshold": 0.9}}, FallbackSettings(lighter=False), 3.0, a=1e-9)
    assert one.start(0.0) == ("b",)
    assert one.arrived(failed("b", 2.0), 0.1) == ("a",)


def test_a_peer_is_paid_out_of_what_the_failed_call_left() -> None:
    links = {"a": Link(("b",), cost=1.0), "b": Link(cost=2.0)}
    one = journey(links, "a", FallbackSettings(lighter=False), 2.0)
    assert one.start(0.0) == ("a",)
    assert one.arrived(failed("a", 1.0), 0.1) == ()
    assert one.ending is not None
    assert {o.model: o.failure.kind for o in one.history if o.failure} == {"a": "timeout", "b": "over_budget"}


def test_the_answer_of_a_peer_counts_when_the_policy_wants_the_peer_itself() -> None:
    links = {"a": Link(("d",)), "d": Link()}
    by_label = {"model": "a", "map": {"y": "a"}, "default": "d", "on_error": "d"}
    one = journey(links, {"by_label": by_label}, FallbackSettings(lighter=False))
    assert one.start(0.0) == ("a",)
    assert one.arrived(failed("a", 1.0), 0.1) == ("d",)
    assert one.arrived(said("d", "x"), 0.2) == ()
    assert one.ending is not None
    assert one.ending.prediction == Prediction("x", 0.9)
    assert one.ending.weights == {"d": 1.0}
    assert sum(o.cost for o in one.history) == 2.0  # each call once


def test_a_default_model_on_its_ramp_is_spared_like_any_other() -> None:
    links = {"a": Link(cost=1.0), "b": Link(cost=2.0)}
    rule = {"rules": [{"when": "text == 'nobody says this'", "use": "b"}]}
    one = journey(links, rule, FallbackSettings(default="a"), a=1e-9)
    assert one.start(0.0) == ("b",)
    assert {o.model: o.failure.kind for o in one.history if o.failure} == {"a": "ramping"}
