from __future__ import annotations

import asyncio
import pathlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rheostat.build import build
from rheostat.engine.engine import Engine, Lane, Plan, Served
from rheostat.engine.journey import Route
from rheostat.errors import ModelError, NoAnswer
from rheostat.policies import Policy, answering_of, models_of, parse_policy, steering_of
from rheostat.pool import Model, Pool
from rheostat.resilience.breaker import BreakerSettings
from rheostat.resilience.holds import Holds
from rheostat.resilience.ladder import FallbackSettings
from rheostat.testing import Act, Scripted, VirtualLoop, check_policy, run_virtual, scripted_model
from rheostat.types import Answer, Call, Context, Decline, Failure, Outcome, Prediction, Request
from rheostat.types.duration import Duration
from tests.config.config_files import load, problems, with_policy

NODE: dict[str, Any] = {
    "model": "clf",
    "map": {"spam": "a", "ham": {"cascade": {"stages": ["b", "c"], "threshold": 0.8}}},
    "default": "c",
    "on_error": "strong",
}
CONTEXT = Context(Request(id="1", data="x", text="x"))


def policy(**change: Any) -> Policy:
    node = {name: value for name, value in (NODE | change).items() if value is not None}
    return parse_policy({"by_label": node})


def said(model: str, label: str, confidence: float = 0.9) -> Outcome:
    return Outcome(model, Prediction(label, confidence), served_by=model)


def failed(model: str, kind: str = "timeout") -> Outcome:
    return Outcome(model, failure=Failure(kind, "no"), served_by=model)


def test_the_label_chooses_a_model_or_a_policy() -> None:
    by_label = policy()
    first = by_label.decide(CONTEXT, ())
    assert isinstance(first, Call)
    assert first.models == ("clf",)
    spam = by_label.decide(CONTEXT, (said("clf", "spam"),))
    assert isinstance(spam, Call)
    assert (spam.models, spam.reason, spam.trouble) == (("a",), "clf says 'spam'", "")
    ham = by_label.decide(CONTEXT, (said("clf", "ham"), said("b", "x", 0.1)))
    assert isinstance(ham, Call)
    assert ham.models == ("c",)
    assert ham.reason == "clf says 'ham'; b 0.1000 < 0.8"


def test_the_weights_are_the_branchs_alone() -> None:
    answer = policy().decide(CONTEXT, (said("clf", "spam"), said("a", "x")))
    assert isinstance(answer, Answer)
    assert answer.weights == {"a": 1.0}


def test_an_unknown_label_goes_to_the_default_and_is_named_shortly() -> None:
    """O-RTE-03."""
    call = policy().decide(CONTEXT, (said("clf", "phish\n" + "x" * 999),))
    assert isinstance(call, Call)
    assert call.models == ("c",)
    assert call.reason.startswith("unknown_label 'phish\\n")
    assert len(call.reason) < 80
    nothing = policy(default=None).decide(CONTEXT, (said("clf", "phish"),))
    assert isinstance(nothing, Decline)
    assert nothing.failed
    assert "unknown_label 'phish' of clf" in nothing.reason


def test_without_a_label_on_error_decides_or_the_ladder() -> None:
    call = policy().decide(CONTEXT, (failed("clf"),))
    assert isinstance(call, Call)
    assert (call.models, call.trouble) == (("strong",), "clf timeout")
    nested = policy(on_error={"cascade": {"stages": ["b", "c"], "threshold": 0.8}}).decide(
        CONTEXT, (failed("clf", "unavailable"), said("b", "x"))
    )
    assert isinstance(nested, Answer)
    assert (nested.weights, nested.trouble) == ({"b": 1.0}, "clf unavailable")
    nothing = policy(on_error=None).decide(CONTEXT, (failed("clf"),))
    assert isinstance(nothing, Decline)
    assert nothing.failed
    assert nothing.reason.startswith("clf timeout")


def test_who_steers_and_who_answers() -> None:
    assert models_of(policy()) == ("clf", "a", "b", "c", "strong")
    assert steering_of(policy()) == ("clf",)
    assert answering_of(policy()) == ("a", "b", "c", "strong")
    both = policy(on_error="clf")  # it is also somebody's answer
    assert steering_of(both) == ()
    assert "clf" in answering_of(both)


@given(st.text(), st.sampled_from(["spam", "ham", "other"]), st.booleans())
def test_the_laws_hold(text: str, label: str, fails: bool) -> None:
    outcomes = {name: said(name, label) for name in ("a", "b", "c", "strong")}
    outcomes["clf"] = failed("clf") if fails else said("clf", label)
    check_policy(policy(), Context(Request(id="1", data=text, text=text)), outcomes)


def test_a_config_sees_every_name_in_it(tmp_path: pathlib.Path) -> None:
    (unknown,) = problems(
        tmp_path, with_policy("by_label: {model: a, map: {x: b, y: {cascade: {stages: [a, d], threshold: .5}}}}")
    )
    assert unknown.path.startswith("routes.default.policy.by_label.map.y.cascade")
    (empty,) = problems(tmp_path, with_policy("by_label: {model: a, map: {}}"))
    assert "`map` needs one label or more" in empty.message
    (classifier,) = problems(tmp_path, with_policy("by_label: {model: d, map: {x: b}}"))
    assert classifier.path == "routes.default.policy.by_label.model"


class Bench:
    """One route by label, in virtual time."""

    def __init__(self, node: object, models: dict[str, Model], **fallback: Any) -> None:
        self.loop = VirtualLoop()
        parsed = parse_policy(node)
        route = Route(
            policy=parsed,
            fallback=FallbackSettings(**fallback),
            links={name: model.link() for name, model in models.items()},
            default=answering_of(parsed)[0],
            steering=steering_of(parsed),
        )
        lanes = {"default": Lane(name="default", route=route)}
        self.plan = Plan(version="v", lanes=lanes, pool=Pool(models))
        self.engine = Engine(self.loop, Holds())

    def run(self, count: int = 1, every_s: float = 0.0) -> list[Served]:
        async def main() -> list[Served]:
            served: list[Served] = []
            for number in range(count):
                request = Request(id=str(number), data="x", text="x", received=self.loop.time())
                served.append(await self.engine.serve(self.plan, request))
                await asyncio.sleep(every_s)
            return served

        return run_virtual(main(), self.loop)

    def calls(self, name: str) -> int:
        backend = self.plan.pool[name].backend
        assert isinstance(backend, Scripted)
        return backend.calls


SPAM = Act(Prediction("spam", 0.97), 0.01)
BROKEN = Act(ModelError("upstream_error", "boom"), 0.01)
GOOD = Act(Prediction("fine", 0.9), 0.01)
PLAIN = {"by_label": {"model": "clf", "map": {"spam": "a"}, "on_error": "strong"}}


def test_the_classifiers_label_is_never_the_answer() -> None:
    models = {"clf": scripted_model("clf", SPAM, cost=9.0), "a": scripted_model("a", GOOD)}
    (served,) = Bench({"by_label": {"model": "clf", "map": {"spam": "a"}}}, models).run()
    assert (served.record.label, served.record.weights, served.record.selected_model) == ("fine", {"a": 1.0}, "a")
    assert served.record.route_type == "by_label"


def test_on_the_ladder_the_classifiers_label_is_no_answer_in_hand() -> None:
    models = {"clf": scripted_model("clf", SPAM, cost=9.0), "a": scripted_model("a", BROKEN)}
    bench = Bench({"by_label": {"model": "clf", "map": {"spam": "a"}}}, models, retry=0)
    (served,) = bench.run()
    assert isinstance(served.error, NoAnswer)
    assert served.record.label is None
    assert bench.calls("clf") == 1

    models = {"clf": scripted_model("clf", SPAM, cost=9.0), "a": scripted_model("a", BROKEN), "b": scripted_model("b", GOOD)}
    (served,) = Bench({"by_label": {"model": "clf", "map": {"spam": "a"}}}, models, retry=0).run()
    assert (served.record.label, served.record.level, served.record.selected_model) == ("fine", 3, "b")


def test_a_policy_of_its_own_that_fails_does_not_fall_back_on_the_classifier() -> None:
    models = {"clf": scripted_model("clf", SPAM), "a": scripted_model("a", GOOD), "b": scripted_model("b", GOOD)}
    node = {
        "by_label": {
            "model": "clf",
            "map": {"spam": {"binary": {"signal": "none", "threshold": 1, "weak": "a", "strong": "b"}}},
        }
    }
    (served,) = Bench(node, models).run()
    assert (served.record.label, served.record.status, served.record.selected_model) == ("fine", "degraded", "a")


def test_a_classifier_that_hangs_costs_a_few_requests_its_timeout_and_the_rest_nothing() -> None:
    """O-RTE-11: 100 requests, a timeout of 300 ms, a breaker after 3 failures."""
    clf = scripted_model(
        "clf",
        Act(hang=True),
        timeout=Duration(0.3),
        breaker=BreakerSettings(failure_threshold=3, timeout_seconds=Duration(60.0)),
    )
    models = {"clf": clf, "a": scripted_model("a", GOOD), "strong": scripted_model("strong", GOOD)}
    bench = Bench(PLAIN, models, retry=0)
    served = bench.run(100, every_s=0.2)
    assert bench.calls("clf") <= 5
    assert {each.record.selected_model for each in served} == {"strong"}
    assert {each.record.status for each in served} == {"degraded"}
    assert served[0].record.fallback_reason == "router_unavailable: clf timeout"
    assert served[-1].record.fallback_reason == "router_unavailable: clf unavailable"
    assert max(each.record.elapsed_s for each in served[10:]) < 0.05
    assert served[0].record.elapsed_s == pytest.approx(0.31)


def test_without_on_error_a_classifier_that_fails_leaves_it_to_the_ladder() -> None:
    models = {"clf": scripted_model("clf", BROKEN), "a": scripted_model("a", GOOD)}
    (served,) = Bench({"by_label": {"model": "clf", "map": {"spam": "a"}}}, models, retry=0).run()
    assert (served.record.label, served.record.level) == ("fine", 3)
    assert served.record.fallback_reason.startswith("clf upstream_error")


def test_a_built_route_knows_who_steers(tmp_path: pathlib.Path) -> None:
    made = "{backend: openai, base_url: 'http://127.0.0.1:9/v1', model: m, labels: [x]}"
    text = (
        f"models: {{clf: {made}, a: {made}}}\nroutes: {{default: {{policy: {{by_label: {{model: clf, map: {{x: a}}}}}}}}}}\n"
    )
    loaded = load(tmp_path, text)

    async def main() -> Route:
        wiring = await build(loaded)
        for model in wiring.plan.pool.models.values():
            await model.aclose()
        return wiring.plan.lanes["default"].route

    route = asyncio.run(main())
    assert (route.steering, route.default) == (("clf",), "a")
