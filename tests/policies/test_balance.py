"""The load-aware choice: it follows the load, keeps sessions, obeys tags, and yields when a model is out."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from rheostat.engine.engine import Engine, Lane, Plan
from rheostat.engine.journey import Route
from rheostat.policies import parse_policy
from rheostat.policies.balance import weights
from rheostat.pool import Pool
from rheostat.resilience.holds import Holds
from rheostat.resilience.ladder import FallbackSettings
from rheostat.resilience.ramp import among
from rheostat.testing import Act, VirtualLoop, check_policy, run_virtual, scripted_model
from rheostat.types import Call, Context, Decline, Failure, ModelView, Outcome, Prediction, Request

NAMES = ("a", "b", "c", "d")
WAYS = ("shortest_wait", "least_loaded", "two_choices", "weighted")
VIEWS = st.builds(
    ModelView,
    name=st.just("x"),
    available=st.booleans(),
    latency_s=st.sampled_from([0.0, 0.01, 1.0]),
    in_flight=st.integers(0, 5),
    error_rate=st.sampled_from([0.0, 0.5, 1.0]),
    queued=st.integers(0, 5),
    ramp=st.sampled_from([0.05, 0.5, 1.0]),
)
OK = {name: Outcome(name, Prediction("x")) for name in NAMES}


def chosen(settings: dict[str, Any], views: dict[str, ModelView], **request: Any) -> str:
    ctx = Context(Request(data="x", **({"id": "r"} | request)), pool=views)
    decision = parse_policy({"balance": settings}).decide(ctx, ())
    assert isinstance(decision, Call)
    return decision.models[0]


def idle(*names: str, **fields: Any) -> dict[str, ModelView]:
    return {name: ModelView(name, **fields) for name in names}


@given(
    st.sampled_from(WAYS),
    st.fixed_dictionaries(dict.fromkeys(NAMES, VIEWS)),
    st.fixed_dictionaries({name: st.sampled_from([0.0, 1.0, 3.0]) for name in NAMES[1:]}),
    st.one_of(st.none(), st.just("session")),
    st.sets(st.sampled_from(NAMES)),
)
def test_it_obeys_the_laws(
    choose: str, views: dict[str, ModelView], scores: dict[str, float], sticky: str | None, failing: set[str]
) -> None:
    policy = parse_policy({"balance": {"models": {"a": 1.0, **scores}, "choose": choose, "sticky": sticky}})
    results = {name: structs.replace(OK[name], prediction=None) if name in failing else OK[name] for name in NAMES}
    ctx = Context(Request(id="r", data="x", session="s"), pool=views)
    called = check_policy(policy, ctx, results)
    assert len(called) == len(set(called))
    able = [name for name in NAMES if views[name].available]
    ready = [name for name in able if among(views[name].ramp, name, "s")] or able
    best = [name for name in ready if name == "a" or scores[name] > 0.0] or ready
    assert not best or called[0] in best


@pytest.mark.parametrize("latency_s", [0.0, 0.195], ids=["unknown", "nearly equal"])
@pytest.mark.parametrize("choose", WAYS)
def test_the_chance_that_is_logged_is_the_chance(choose: str, latency_s: float) -> None:
    views = {"a": ModelView("a", in_flight=3, latency_s=0.1), "b": ModelView("b", latency_s=0.2)}
    views["c"] = ModelView("c", latency_s=latency_s)
    policy = parse_policy({"balance": {"models": {"a": 1, "b": 2, "c": 2}, "choose": choose}})
    said: dict[str, float] = {}
    counts: Counter[str] = Counter()
    for number in range(4000):
        decision = policy.decide(Context(Request(id=str(number), data="x"), pool=views), ())
        assert isinstance(decision, Call)
        counts[decision.models[0]] += 1
        said[decision.models[0]] = decision.propensity
    assert sum(said.values()) == pytest.approx(1.0)
    for model, propensity in said.items():
        assert counts[model] / 4000 == pytest.approx(propensity, abs=0.03)


def test_weights_follow_latency_load_and_errors_and_keep_a_floor() -> None:
    views = {
        "quick": ModelView("quick", latency_s=0.1),
        "slow": ModelView("slow", latency_s=0.2),
        "busy": ModelView("busy", latency_s=0.1, in_flight=3),
        "broken": ModelView("broken", latency_s=0.1, error_rate=1.0),
    }
    shares = weights(dict.fromkeys(views, 1.0), views)
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares["quick"] == pytest.approx(2 * shares["slow"])
    assert shares["quick"] == pytest.approx(4 * shares["busy"])
    assert 0.0 < shares["broken"] < 0.01


def test_a_session_keeps_its_model_yields_and_comes_back_once() -> None:
    """O-RTE-09: affinity is a preference."""
    settings = {"models": ["a", "b", "c"], "sticky": "session"}
    sessions = [f"s{number}" for number in range(300)]
    before = {each: chosen(settings, idle(*"abc"), session=each) for each in sessions}
    assert min(Counter(before.values()).values()) > 60
    out = idle(*"abc") | {"a": ModelView("a", available=False)}
    during = {each: chosen(settings, out, session=each) for each in sessions}
    assert "a" not in during.values()
    assert all(during[each] == before[each] for each in sessions if before[each] != "a")
    assert {each: chosen(settings, idle(*"abc"), session=each, id="later") for each in sessions} == before


@pytest.mark.parametrize("choose", WAYS)
def test_a_model_on_its_ramp_is_named_as_often_as_it_may_be_asked(choose: str) -> None:
    """It is idle, so by load alone it would be named first every time, and passed over every time."""
    settings = {"models": ["a", "b", "c"], "choose": choose}
    ids = [f"r{number}" for number in range(2000)]
    busy = idle(*"bc", in_flight=5, latency_s=0.1)

    def named(ramp: float) -> set[str]:
        views = {"a": ModelView("a", latency_s=0.1, ramp=ramp), **busy}
        return {each for each in ids if chosen(settings, views, id=each) == "a"}

    whole, early, later = named(1.0), named(0.05), named(0.3)
    assert len(early) / len(whole) == pytest.approx(0.05, abs=0.02)
    assert len(later) / len(whole) == pytest.approx(0.3, abs=0.04)
    assert early < later < whole, "a ramp that grows only adds requests"
    only = {"a": ModelView("a", ramp=0.05), "b": ModelView("b", available=False), "c": ModelView("c", available=False)}
    assert {chosen(settings, only, id=each) for each in ids[:50]} == {"a"}, "nobody else could be asked"


def test_a_session_follows_its_model_up_the_ramp_once() -> None:
    """O-RTE-09: while its model comes back, a session changes at most once."""
    settings = {"models": ["a", "b", "c"], "sticky": "session"}
    moved = 0
    for session in [f"s{number}" for number in range(200)]:
        steps = [idle(*"bc") | {"a": ModelView("a", ramp=ramp)} for ramp in (0.05, 0.1, 0.2, 0.4, 0.8, 1.0)]
        on = [chosen(settings, views, session=session, id=str(number)) for number, views in enumerate(steps)]
        changes = sum(one != two for one, two in pairwise(on))
        assert changes <= 1
        moved += changes
    assert 30 < moved < 100


def test_tags_limit_the_choice() -> None:
    """O-RTE-14: tagged, untagged and unknown tags."""
    views = {
        "f": ModelView("f", tags=("free",)),
        "p": ModelView("p", tags=("paid",)),
        "d": ModelView("d", tags=("default",)),
    }
    settings = {"models": ["f", "p", "d"], "tags": "x-tag"}
    for number in range(50):
        assert chosen(settings, views, id=str(number), headers={"x-tag": "free"}) == "f"
        assert chosen(settings, views, id=str(number), meta={"x-tag": "paid"}) == "p"
        assert chosen(settings, views, id=str(number)) == "d"
        assert chosen(settings, views, id=str(number), headers={"x-tag": "gold"}) == "d"
    failed = (Outcome("f"),)
    ctx = Context(Request(id="r", data="x", headers={"x-tag": "free"}), pool=views)
    assert isinstance(parse_policy({"balance": settings}).decide(ctx, failed), Decline)


@pytest.mark.parametrize("choose", WAYS)
def test_a_reason_says_how_those_before_failed(choose: str) -> None:
    policy = parse_policy({"balance": {"models": {"a": 9, "b": 1, "c": 0}, "choose": choose}})
    views = {"a": ModelView("a", latency_s=0.01), "b": ModelView("b", available=False), "c": ModelView("c")}
    ctx = Context(Request(id="r", data="x"), pool=views)
    history: tuple[Outcome, ...] = ()
    said = []
    for kind in ("overloaded", "timeout", "crashed"):
        decision = policy.decide(ctx, history)
        assert isinstance(decision, Call)
        said.append(decision.reason)
        history += (Outcome(decision.models[0], failure=Failure(kind)),)
    assert [outcome.model for outcome in history] == ["a", "c", "b"]
    assert "failed" not in said[0]
    assert said[1].startswith("a failed: overloaded; c ")
    assert said[2].startswith("a failed: overloaded; c failed: timeout; b ")
    last = policy.decide(ctx, history)
    assert last == Decline("every model failed, b last: crashed", failed=True)


@pytest.mark.parametrize(
    ("models", "said"),
    [
        ({"a": 0.0, "b": 0.0}, "no score above 0"),
        ({"a": -1.0}, "models.a"),
        ({"a": float("nan")}, "models.a"),
        (["a", "a"], "twice"),
        ([], "empty"),
    ],
)
def test_scores_that_cannot_be_used_are_refused(models: Any, said: str) -> None:
    """O-RTE-05, for scores."""
    with pytest.raises(ValueError, match=said):
        parse_policy({"balance": {"models": models}})


def test_a_burst_is_spread_by_live_counts() -> None:
    """O-ROL-04: no herd on one model between two views."""
    loop = VirtualLoop()
    models = {name: scripted_model(name, Act(Prediction("x", 1.0), 0.5)) for name in NAMES}
    policy = parse_policy({"balance": {"models": list(NAMES), "choose": "least_loaded"}})
    route = Route(policy=policy, fallback=FallbackSettings(), links={n: m.link() for n, m in models.items()}, default="a")
    plan = Plan(version="v", lanes={"default": Lane(name="default", route=route, live=True)}, pool=Pool(models))
    engine = Engine(loop, Holds(), ())

    async def burst() -> None:
        now = loop.monotonic()
        await asyncio.gather(
            *(engine.serve(plan, Request(id=str(n), data="x", received=now, deadline=now + 9.0)) for n in range(100))
        )

    run_virtual(burst(), loop)
    assert [model.backend.calls for model in models.values()] == [25] * 4  # type: ignore[union-attr]
    assert all((model.in_flight, len(model.waiting)) == (0, 0) for model in models.values())
