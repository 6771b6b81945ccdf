"""What counts in a blend in the place of a model that failed, by example and through the live engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rheostat.engine.engine import Engine, Lane, Plan, Served
from rheostat.engine.journey import Journey, Route
from rheostat.errors import ModelError
from rheostat.lab.redecide import Way, redecide
from rheostat.policies import models_of, parse_policy
from rheostat.policies.stand_in import averaged_of
from rheostat.pool import Pool
from rheostat.resilience.holds import Holds
from rheostat.resilience.ladder import FallbackSettings, Link
from rheostat.resilience.means import LEAST
from rheostat.testing import Act, Scripted, VirtualLoop, check_policy, run_virtual, scripted_model
from rheostat.types import Answer, Call, Context, Decline, Failure, ModelView, Outcome, Prediction, Request, RouteRecord

WEIGHTS = {"a": 0.5, "b": 0.3, "c": 0.2}
SAID = {"a": {"x": 0.8, "y": 0.2}, "b": {"x": 0.1, "y": 0.9}, "c": {"x": 0.4, "y": 0.6}, "d": {"x": 0.3, "y": 0.7}}


def blend(**more: Any) -> Any:
    return parse_policy({"blend": {"weights": WEIGHTS, **more}})


def good(*names: str) -> tuple[Outcome, ...]:
    return tuple(Outcome(name, Prediction.from_scores(SAID[name]), served_by=name) for name in names)


def bad(*names: str) -> tuple[Outcome, ...]:
    return tuple(Outcome(name, failure=Failure("timeout"), served_by=name) for name in names)


def ctx(means: Mapping[str, Mapping[str, Mapping[str, float]]] | None = None, **meta: Any) -> Context:
    views = {name: ModelView(name, means=(means or {}).get(name, {})) for name in SAID}
    return Context(Request(id="1", data="x", text="x", meta=meta), pool=views)


def test_by_default_a_failed_member_is_left_out_and_the_rest_counts_in_proportion() -> None:
    answer = blend().decide(ctx(), good("a", "c") + bad("b"))
    assert answer.weights == pytest.approx({"a": 0.5 / 0.7, "c": 0.2 / 0.7})
    assert (answer.missing, answer.stand_ins) == (("b",), {})
    assert "without b" in answer.reason


def test_its_mean_stands_in_with_its_own_weight_and_is_marked() -> None:
    mean = {"x": 0.5, "y": 0.5}
    answer = blend(stand_in="mean").decide(ctx({"b": {"": mean}}), good("a", "c") + bad("b"))
    assert answer.weights == pytest.approx(WEIGHTS)
    assert (answer.missing, answer.stand_ins) == (("b",), {"b": mean})
    assert "its mean stands in for b" in answer.reason


def test_without_a_mean_it_is_dropped_and_the_reason_says_so() -> None:
    for context in (ctx(), Context(Request(id="1", data="x"))):  # a replay has no means at all
        answer = blend(stand_in="mean").decide(context, good("a", "c") + bad("b"))
        assert answer.weights == pytest.approx({"a": 0.5 / 0.7, "c": 0.2 / 0.7})
        assert "there is no mean of it yet" in answer.reason
        assert answer.stand_ins == {}


def test_the_segment_of_the_request_comes_before_all_requests() -> None:
    policy = blend(stand_in="mean", segment="site")
    means = {"b": {"": {"x": 0.5, "y": 0.5}, "site=north": {"x": 1.0}}}
    history = good("a", "c") + bad("b")
    assert policy.decide(ctx(means, site="north"), history).stand_ins == {"b": {"x": 1.0}}
    for other in ({"site": "south"}, {"site": ""}, {}):
        assert policy.decide(ctx(means, **other), history).stand_ins == {"b": {"x": 0.5, "y": 0.5}}


def test_a_mean_does_not_count_for_the_least_weight_and_an_answer_does() -> None:
    means = {"a": {"": {"x": 1.0}}}
    failed = bad("a")
    by_mean = blend(stand_in="mean", min_weight=0.6).decide(ctx(means), failed + good("b", "c"))
    assert isinstance(by_mean, Decline)
    assert by_mean.failed
    by_other = blend(stand_in="d", min_weight=0.6).decide(ctx(), failed + good("b", "c", "d"))
    assert isinstance(by_other, Answer)
    assert by_other.weights == pytest.approx({"d": 0.5, "b": 0.3, "c": 0.2})


def test_only_means_are_no_answer() -> None:
    means = {name: {"": {"x": 1.0}} for name in WEIGHTS}
    decision = blend(stand_in="mean", min_weight=0.0).decide(ctx(means), bad("a", "b", "c"))
    assert isinstance(decision, Decline)


def test_another_model_is_asked_as_soon_as_a_member_has_failed() -> None:
    policy = blend(stand_in="d")
    assert policy.decide(ctx(), ()).models == ("a", "b", "c")
    call = policy.decide(ctx(), bad("b"))
    assert isinstance(call, Call)
    assert call.models == ("a", "b", "c", "d")
    assert isinstance(policy.decide(ctx(), bad("b") + good("a", "c")), Call)
    answer = policy.decide(ctx(), bad("b") + good("a", "c", "d"))
    assert answer.weights == pytest.approx({"a": 0.5, "c": 0.2, "d": 0.3})
    assert answer.missing == ("b",)
    assert answer.stand_ins == {"b": SAID["d"]}


def test_a_member_that_has_answered_takes_the_share_without_another_call() -> None:
    answer = blend(stand_in="a").decide(ctx(), good("a", "c") + bad("b"))
    assert answer.weights == pytest.approx({"a": 0.8, "c": 0.2})


@pytest.mark.parametrize("failed", ["d", "a"])
def test_a_stand_in_that_fails_itself_leaves_the_rest(failed: str) -> None:
    answer = blend(stand_in=failed, min_weight=0.0).decide(ctx(), good("c") + bad("a", "b", "d"))
    assert answer.weights == {"c": 1.0}
    assert f"{failed} failed too" in answer.reason


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="`stand_in` goes with `mode: mix`"):
        blend(stand_in="mean", mode="sample")
    with pytest.raises(ValueError, match="`segment` goes with `stand_in: mean`"):
        blend(segment="site")
    with pytest.raises(ValueError, match="`stand_in` must be drop or mean"):
        parse_policy({"delegate": {"weak": "a", "strong": "b", "stand_in": "c"}})


def test_the_names_it_uses() -> None:
    assert models_of(blend(stand_in="d")) == ("a", "b", "c", "d")
    assert models_of(blend(stand_in="mean")) == ("a", "b", "c")
    nested = parse_policy({"chain": [blend_node("mean", "site"), blend_node("mean", None)]})
    assert averaged_of(nested) == dict.fromkeys(WEIGHTS, ("site", None))
    assert averaged_of(blend()) == {}


def blend_node(way: str, segment: str | None) -> dict[str, Any]:
    return {"blend": {"weights": WEIGHTS, "stand_in": way} | ({"segment": segment} if segment else {})}


def test_continuous_delegation_goes_on_when_the_strong_model_fails() -> None:
    """The weight is a signal, so it is known although the strong model is silent."""
    node = {"weak": "a", "strong": "b", "weight": "w", "stand_in": "mean"}
    policy = parse_policy({"delegate": node})
    context = Context(Request(id="1", data="x"), {"w": 0.25}, {"b": ModelView("b", means={"": {"x": 0.0, "y": 1.0}})})
    answer = policy.decide(context, good("a") + bad("b"))
    assert answer.weights == {"a": 0.75, "b": 0.25}
    assert answer.stand_ins == {"b": {"x": 0.0, "y": 1.0}}


@given(
    st.sampled_from(["drop", "mean", "a", "d"]), st.sets(st.sampled_from("abcd")), st.booleans(),
    st.sampled_from([0.0, 0.5, 1.0]),
)  # fmt: skip
def test_the_law_of_policies_holds_whoever_fails(way: str, failing: set[str], known: bool, least: float) -> None:
    means = {name: {"": SAID[name]} for name in SAID} if known else {}
    outcomes = {name: (bad(name) if name in failing else good(name))[0] for name in SAID}
    policy = blend(stand_in=way, min_weight=least)
    check_policy(policy, ctx(means), outcomes)
    route = Route(
        policy=policy, fallback=FallbackSettings(lighter=False), links={name: Link() for name in SAID}, default="a"
    )
    journey = Journey(route, ctx(means))
    waiting = list(journey.start(0.0))
    while journey.ending is None:
        waiting += journey.arrived(outcomes[waiting.pop(0)], 0.1)
    ending = journey.ending
    if ending.prediction is not None:
        assert sum(ending.weights.values()) == pytest.approx(1.0, abs=1e-9)
        assert sum((ending.prediction.scores or {}).values()) == pytest.approx(1.0, abs=1e-9)


class Bench:
    """A live engine over scripted models and a blend that uses means."""

    def __init__(self, acts: Mapping[str, Sequence[Act]], node: dict[str, Any], **settings: Any) -> None:
        self.loop = VirtualLoop()
        self.records: list[RouteRecord] = []
        self.pool = Pool({name: scripted_model(name, *each, timeout=0.5, **settings) for name, each in acts.items()})
        self.policy = parse_policy(node)
        links = {name: model.link() for name, model in self.pool.models.items()}
        route = Route(policy=self.policy, fallback=FallbackSettings(retry=0), links=links, default="a")
        lane = Lane(name="default", route=route, averaged=averaged_of(self.policy))
        self.plan = Plan(version="v", lanes={"default": lane}, pool=self.pool)
        self.engine = Engine(self.loop, Holds(), (self.records.append,))

    async def ask(self, number: int, **meta: Any) -> Served:
        now = self.loop.monotonic()
        return await self.engine.serve(
            self.plan, Request(id=str(number), data="x", received=now, deadline=now + 10.0, meta=meta)
        )

    def run(self, count: int, **meta: Any) -> list[Served]:
        async def all_of_them() -> list[Served]:
            return [await self.ask(number, **meta) for number in range(count)]

        return run_virtual(all_of_them(), self.loop)


def saying(name: str, times: int = 1) -> list[Act]:
    return [Act(Prediction.from_scores(SAID[name]), 0.1)] * times


def test_the_live_engine_gives_the_means_and_the_record_decides_again() -> None:
    hang = Act(hang=True)
    acts = {"a": saying("a"), "b": [*saying("b", LEAST), hang], "c": saying("c")}
    bench = Bench(acts, blend_node("mean", "site"))
    last = bench.run(LEAST + 1, site="north")[-1].record
    assert last.missing == ("b",)
    assert last.stood_in["b"] == pytest.approx(SAID["b"])
    assert last.weights == pytest.approx(WEIGHTS)
    assert last.scores == pytest.approx({"x": 0.4 + 0.03 + 0.08, "y": 0.1 + 0.27 + 0.12})
    assert "its mean stands in for b" in last.reason
    assert (last.selected_model, last.status) == ("a", "ok")
    way = Way(policy=bench.policy, fallback=FallbackSettings(retry=0), links={name: Link() for name in SAID})
    again = redecide(last, way)
    assert again.weights == pytest.approx(WEIGHTS)
    assert again.trouble == ""


def test_too_few_answers_make_no_mean() -> None:
    acts = {"a": saying("a"), "b": [*saying("b", LEAST - 1), Act(ModelError("upstream_error", "no"))], "c": saying("c")}
    last = Bench(acts, blend_node("mean", None)).run(LEAST)[-1].record
    assert last.stood_in == {}
    assert last.weights == pytest.approx({"a": 0.5 / 0.7, "c": 0.2 / 0.7})


def test_another_model_answers_live_and_both_are_named() -> None:
    acts = {"a": saying("a"), "b": [Act(hang=True)], "c": saying("c"), "d": saying("d")}
    bench = Bench(acts, blend_node("d", None))
    (served,) = bench.run(1)
    record = served.record
    assert record.weights == pytest.approx({"a": 0.5, "c": 0.2, "d": 0.3})
    assert (record.missing, record.stood_in) == (("b",), {"b": SAID["d"]})
    assert record.scores == pytest.approx({"x": 0.4 + 0.08 + 0.09, "y": 0.1 + 0.12 + 0.21})
    backend = bench.pool["d"].backend
    assert isinstance(backend, Scripted)
    assert backend.calls == 1
    assert len(bench.engine.means) == 0
