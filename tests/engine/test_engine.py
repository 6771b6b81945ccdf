"""The live engine in virtual time: every ending, and nothing left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rheostat.engine.engine import Engine, Lane, Plan, Served
from rheostat.engine.journey import Route
from rheostat.errors import DeadlineExceeded, ModelError, NoAnswer
from rheostat.policies import answering_of, parse_policy, steering_of, walk
from rheostat.pool import Model, ModelSettings, Pool
from rheostat.resilience.breaker import BreakerSettings
from rheostat.resilience.holds import Holds
from rheostat.resilience.ladder import FallbackSettings, Preset
from rheostat.signals.base import AnswerScorer, Scorer
from rheostat.testing import Act, Scripted, VirtualLoop, run_virtual, scripted_model
from rheostat.types import Prediction, Request, RouteRecord
from rheostat.types.duration import Duration
from tests.policies.test_policies import MODELS, nodes

SURE = Act(Prediction("a", 0.95), 0.1)
UNSURE = Act(Prediction("b", 0.3), 0.1)
BROKEN = Act(ModelError("upstream_error", "boom"), 0.1)
HANG = Act(hang=True)


class Bench:
    """An engine over scripted models."""

    def __init__(
        self, policy: object, models: dict[str, Model], scorers: tuple[Scorer | AnswerScorer, ...] = (), **fallback: Any
    ) -> None:
        self.loop = VirtualLoop()
        self.records: list[RouteRecord] = []
        self.pool = Pool(models)
        parsed = parse_policy(policy)
        route = Route(
            policy=parsed,
            fallback=FallbackSettings(**fallback),
            links={name: model.link() for name, model in models.items()},
            default=fallback.get("default") or answering_of(parsed)[0],
            answer_scorers=tuple(scorer for scorer in scorers if isinstance(scorer, AnswerScorer)),
            steering=steering_of(parsed),
        )
        held = tuple((p.name, p.key) for p in walk(parsed) if getattr(p, "hysteresis", None) is not None)
        lane = Lane(
            name="default",
            route=route,
            held=held,
            scorers=tuple(scorer for scorer in scorers if not isinstance(scorer, AnswerScorer)),
        )
        self.plan = Plan(version="v", lanes={"default": lane}, pool=self.pool)
        self.engine = Engine(self.loop, Holds(), (self.records.append,))

    def run(self, *requests: dict[str, Any], leave_after: float | None = None) -> list[Served]:
        return run_virtual(self.all(requests, leave_after), self.loop)

    async def all(self, requests: Sequence[dict[str, Any]], leave_after: float | None = None) -> list[Served]:
        out = []
        for number, options in enumerate(requests or ({},)):
            out.append(await self.one(str(number), options, leave_after))
        return out

    async def one(self, name: str, options: dict[str, Any], leave_after: float | None = None) -> Served:
        options = {"deadline_s": 10.0} | options
        now = self.loop.monotonic()
        options = {"data": "x"} | options
        request = Request(id=name, received=now, deadline=now + options.pop("deadline_s"), **options)
        task = asyncio.ensure_future(self.engine.serve(self.plan, request))
        if leave_after is not None:
            self.loop.call_later(leave_after, task.cancel)
        return await task

    def backend(self, name: str) -> Scripted:
        backend = self.pool[name].backend
        assert isinstance(backend, Scripted)
        return backend

    def assert_clean(self) -> None:
        assert self.engine.in_flight == 0
        for name in self.pool:
            assert self.pool[name].in_flight == 0, name
            assert not self.pool[name].waiting, name
            assert self.backend(name).running == 0, name


CASCADE = {"cascade": {"stages": ["fast", "large"], "threshold": 0.9}}


def pair(fast: Sequence[Act], large: Sequence[Act], **settings: Any) -> dict[str, Model]:
    return {
        "fast": scripted_model("fast", *fast, cost=1.0),
        "large": scripted_model("large", *large, cost=40.0, **settings),
    }


def test_a_cascade_escalates_and_pays_for_both() -> None:
    bench = Bench(CASCADE, pair([UNSURE], [SURE]))
    (served,) = bench.run()
    record = served.record
    assert (record.label, record.selected_model, record.route_type, record.status) == ("a", "large", "cascade", "ok")
    assert record.cost == 41.0
    assert record.elapsed_s == pytest.approx(0.2)
    assert record.overhead_s == pytest.approx(0.0, abs=1e-9)
    assert [step.kind for step in record.steps] == ["call", "call", "answer"]
    bench.assert_clean()


def test_l1_the_same_model_again() -> None:
    bench = Bench(CASCADE, pair([BROKEN, SURE], [SURE]))
    (served,) = bench.run()
    assert (served.record.selected_model, served.record.level) == ("fast", 1)
    assert "upstream_error" in served.record.fallback_reason
    assert len(served.record.outcomes[0].attempts) == 2
    assert bench.backend("large").calls == 0


def test_l2_a_peer_stands_in_and_the_policy_does_not_notice() -> None:
    models = pair([UNSURE], [BROKEN], peers=("peer",)) | {"peer": scripted_model("peer", SURE, cost=40.0)}
    bench = Bench(CASCADE, models, retry=0)
    (served,) = bench.run()
    record = served.record
    assert (record.selected_model, record.level, record.route_type) == ("peer", 2, "cascade")
    assert record.weights == {"large": 1.0}
    assert record.cost == 81.0  # fast, large, peer
    assert [a.model for a in record.outcomes[-1].attempts] == ["large", "peer"]


def test_l3_prefers_the_answer_in_hand() -> None:
    bench = Bench(CASCADE, pair([UNSURE], [BROKEN]), retry=0)
    (served,) = bench.run()
    assert (served.record.label, served.record.level, served.record.status) == ("b", 3, "degraded")
    assert bench.backend("fast").calls == 1


def test_l3_asks_a_lighter_model_when_nothing_is_in_hand() -> None:
    bench = Bench("large", pair([UNSURE], [BROKEN], lighter="fast"), retry=0)
    (served,) = bench.run()
    assert (served.record.selected_model, served.record.level) == ("fast", 3)


def test_l5_the_preset_and_then_nothing() -> None:
    models = pair([BROKEN], [BROKEN])
    (served,) = Bench(CASCADE, models, retry=0, preset=Preset(label="unknown")).run()
    assert (served.record.label, served.record.level, served.record.selected_model) == ("unknown", 5, "preset")
    (served,) = Bench(CASCADE, pair([BROKEN], [BROKEN]), retry=0).run()
    assert isinstance(served.error, NoAnswer)
    assert served.error.http_status == 502
    assert "fast: upstream_error" in str(served.error)
    assert "large: upstream_error" in str(served.error)


def test_models_that_name_each_other_are_visited_once() -> None:
    models = {
        "a": scripted_model("a", BROKEN, peers=("b",), lighter="b"),
        "b": scripted_model("b", BROKEN, peers=("a",), lighter="a"),
    }
    bench = Bench("a", models, retry=0)
    (served,) = bench.run()
    assert isinstance(served.error, NoAnswer)
    assert (bench.backend("a").calls, bench.backend("b").calls) == (1, 1)


def test_retries_do_not_multiply() -> None:
    models = {name: scripted_model(name, BROKEN) for name in "abc"}
    bench = Bench("a", models, retry=2)
    bench.run()
    assert [bench.backend(name).calls for name in "abc"] == [3, 3, 3]


def test_the_clients_own_fault_is_final_and_harmless() -> None:
    refused = Act(ModelError("input_refused", "no such field", upstream_status=400))
    bench = Bench("large", pair([SURE], [refused] * 10 + [SURE]), retry=3)
    served = bench.run(*[{}] * 11)
    assert all(isinstance(s.error, ModelError) for s in served[:10])
    assert served[0].record.status == "rejected"
    assert bench.backend("large").calls == 11
    assert bench.backend("fast").calls == 0
    assert served[10].record.selected_model == "large"


def test_the_deadline_ends_everything_in_time() -> None:
    bench = Bench(CASCADE, pair([UNSURE], [HANG]))
    (served,) = bench.run({"deadline_s": 1.0})
    assert (served.record.label, served.record.level) == ("b", 3)
    assert served.record.elapsed_s == pytest.approx(1.0)
    bench.assert_clean()
    bench = Bench("large", pair([SURE], [HANG]))
    (served,) = bench.run({"deadline_s": 1.0})
    assert isinstance(served.error, DeadlineExceeded)
    assert bench.backend("large").cancelled == 1


def test_an_attempt_that_times_out_leaves_time_for_the_rest() -> None:
    bench = Bench(CASCADE, pair([UNSURE], [HANG], timeout=0.5), retry=0)
    (served,) = bench.run()
    assert served.record.outcomes[-1].failure is not None
    assert served.record.outcomes[-1].failure.kind == "timeout"
    assert served.record.elapsed_s == pytest.approx(0.6)


def test_early_exit_cancels_the_large_call() -> None:
    delegate = {"delegate": {"weak": "fast", "strong": "large", "low": 0.2, "high": 0.8, "parallel": True}}
    bench = Bench(delegate, pair([SURE], [HANG]))
    (served,) = bench.run()
    assert (served.record.selected_model, served.record.cancelled) == ("fast", ("large",))
    assert served.record.elapsed_s == pytest.approx(0.1)
    assert served.record.cost == 41.0  # what was started is paid for
    assert bench.backend("large").cancelled == 1
    bench.assert_clean()


def test_a_blend_without_one_member() -> None:
    def scores(x: float) -> Act:
        return Act(Prediction.from_scores({"x": x, "y": 1 - x}))

    models = {
        "a": scripted_model("a", scores(0.8)),
        "b": scripted_model("b", HANG, timeout=0.2),
        "c": scripted_model("c", scores(0.4)),
    }
    bench = Bench({"blend": {"weights": {"a": 0.5, "b": 0.3, "c": 0.2}}}, models, retry=0)
    (served,) = bench.run()
    assert served.record.scores == pytest.approx({"x": 0.48 / 0.7, "y": 0.22 / 0.7}, abs=1e-9)
    assert served.record.missing == ("b",)
    assert "without b" in served.record.reason


def test_a_breaker_opens_once_and_one_probe_finds_the_recovery() -> None:
    breaker = BreakerSettings(failure_threshold=3, success_threshold=1, timeout_seconds=Duration(10.0))
    models = {
        "a": scripted_model("a", *[HANG] * 3, Act(Prediction("a", 1.0), 2.0), timeout=0.5, breaker=breaker),
        "b": scripted_model("b", SURE),
    }
    bench = Bench("a", models, retry=0)

    async def story() -> None:
        for number in range(5):
            await bench.one(f"f{number}", {})
        assert bench.backend("a").calls == 3
        assert bench.pool["a"].breaker.name == "open"
        await asyncio.sleep(10.0)
        crowd = [asyncio.ensure_future(bench.one(f"p{number}", {"deadline_s": 1.5})) for number in range(20)]
        started = bench.loop.monotonic()
        await asyncio.wait(crowd[1:])
        assert bench.loop.monotonic() - started < 0.2  # nobody waits for the probe
        assert bench.backend("a").calls == 4
        await asyncio.wait(crowd)

    run_virtual(story(), bench.loop)
    bench.assert_clean()


def test_an_abandoned_probe_gives_its_place_back() -> None:
    breaker = BreakerSettings(failure_threshold=1, success_threshold=1, timeout_seconds=Duration(5.0))
    models = {"a": scripted_model("a", BROKEN, Act(Prediction("a", 1.0), 5.0), SURE, breaker=breaker)}
    bench = Bench("a", models, retry=0)

    async def story() -> None:
        await bench.one("0", {})
        await asyncio.sleep(5.0)
        with pytest.raises(asyncio.CancelledError):
            await bench.one("1", {}, leave_after=0.3)
        assert bench.pool["a"].breaker.name == "half-open"
        served = await bench.one("2", {})
        assert served.record.label == "a"
        assert bench.pool["a"].breaker.name == "closed"

    run_virtual(story(), bench.loop)


def test_clients_that_leave_harm_nobody() -> None:
    bench = Bench("a", {"a": scripted_model("a", Act(Prediction("a", 1.0), 1.0))})

    async def story() -> None:
        for number in range(20):
            with pytest.raises(asyncio.CancelledError):
                await bench.one(str(number), {}, leave_after=0.1)
        assert bench.pool["a"].breaker.failures == 0
        assert (await bench.one("good", {})).record.label == "a"

    run_virtual(story(), bench.loop)
    assert [record.status for record in bench.records] == ["cancelled"] * 20 + ["ok"]
    assert bench.backend("a").calls == 21
    bench.assert_clean()


def test_a_full_queue_refuses_at_once_and_a_left_place_is_given_on() -> None:
    model = scripted_model("a", Act(Prediction("a", 1.0), 1.0), max_concurrency=2, queue=2)
    bench = Bench("a", {"a": model}, lighter=False)

    async def story() -> list[Any]:
        tasks = [asyncio.ensure_future(bench.one(str(number), {})) for number in range(6)]
        await asyncio.sleep(0.2)
        refused = [task for task in tasks if task.done()]
        assert len(refused) == 2
        assert all(isinstance(task.result().error, NoAnswer) and task.result().error.http_status == 503 for task in refused)
        tasks[2].cancel()
        await asyncio.sleep(0)
        later = asyncio.ensure_future(bench.one("later", {}))
        await asyncio.wait([*tasks, later])
        return [later.result().record.label, await bench.one("after", {})]

    label, _ = run_virtual(story(), bench.loop)
    assert label == "a"
    assert bench.backend("a").calls == 5  # two at once, one of the queue, the later one, the one after
    assert bench.backend("a").most_running == 2
    bench.assert_clean()


def test_the_routers_own_failure_goes_to_the_default_model() -> None:
    needs = {"binary": {"signal": "gone", "threshold": 0.5, "weak": "fast", "strong": "large"}}
    bench = Bench(needs, pair([SURE], [SURE]), default="large")
    (served,) = bench.run()
    assert (served.record.selected_model, served.record.route_type) == ("large", "default")
    assert served.record.fallback_reason.startswith("router_unavailable")
    assert served.record.status == "degraded"


def test_forced_and_skipped() -> None:
    bench = Bench(CASCADE, pair([SURE], [SURE]))
    forced, skipped, unknown = bench.run({"force_model": "large"}, {"skip_route": True}, {"force_model": "nope"})
    assert (forced.record.selected_model, forced.record.route_type, forced.record.forced) == ("large", "forced", True)
    assert skipped.record.route_type == "skipped"
    assert unknown.error is not None
    assert "no model named 'nope'" in str(unknown.error)


def test_hysteresis_is_remembered_between_requests() -> None:
    policy = {"cascade": {"stages": ["fast", "large"], "threshold": 0.9, "hysteresis": [0.8, 0.92]}}
    acts = [Act(Prediction("a", c)) for c in (0.95, 0.85, 0.5, 0.85)]
    bench = Bench(policy, pair(acts, [SURE]))
    served = bench.run(*[{"session": "s"}] * 4)
    assert [s.record.selected_model for s in served] == ["fast", "fast", "large", "large"]


def test_an_inline_model_that_raises_or_lies_is_only_its_own_failure() -> None:
    class Liar:
        labels = ("a", "b")

        def __init__(self) -> None:
            self.replies: list[Any] = [[], [Prediction("zzz", 0.9)], [Prediction("a", float("nan"))], None]

        def predict(self, rows: Sequence[Any]) -> Any:  # noqa: ARG002
            reply = self.replies.pop(0)
            if reply is None:
                raise ZeroDivisionError
            return reply

        def close(self) -> None:
            return None

    models = {"fast": Model("fast", ModelSettings(), Liar()), "large": scripted_model("large", SURE)}
    bench = Bench(CASCADE, models, retry=0)
    bench.loop.run_until_complete(bench.all([{}] * 4))
    kinds = [record.outcomes[0].failure.kind if record.outcomes[0].failure else None for record in bench.records]
    assert kinds == ["bad_output", "bad_output", None, "crashed"]
    assert "invalid_confidence" in bench.records[2].reason
    assert all(record.selected_model == "large" for record in bench.records)
    bench.loop.close()


ACTS = st.lists(
    st.builds(
        Act,
        reply=st.one_of(
            st.builds(Prediction, st.sampled_from("ab"), st.one_of(st.none(), st.floats(0, 1))),
            st.sampled_from(["upstream_error", "rate_limited", "bad_output", "connection", "input_refused"]).map(
                lambda kind: ModelError(kind, "x")
            ),
        ),
        delay_s=st.sampled_from([0.0, 0.01, 0.3, 2.0]),
        raises=st.sampled_from([None, None, None, ValueError("bug")]),
        hang=st.sampled_from([False, False, False, True]),
    ),
    min_size=1,
    max_size=3,
)


@settings(deadline=None, max_examples=200)
@given(
    node=nodes(),
    acts=st.tuples(ACTS, ACTS, ACTS),
    timeout=st.sampled_from([0.0, 0.2]),
    concurrency=st.sampled_from([0, 1]),
    queue=st.sampled_from([0, 2]),
    leave=st.lists(st.one_of(st.none(), st.floats(0, 1)), min_size=4, max_size=4),
    preset=st.booleans(),
)
def test_every_request_ends_once_in_time_and_leaves_nothing(
    node: object, acts: Any, timeout: float, concurrency: int, queue: int, leave: list[float | None], preset: bool
) -> None:
    models = {
        name: scripted_model(
            name, *plays, timeout=timeout, max_concurrency=concurrency, queue=queue, cost=float(index + 1), peers=("m2",)
        )
        for index, (name, plays) in enumerate(zip(MODELS, acts, strict=True))
    }
    bench = Bench(node, models, preset=Preset(label="p") if preset else None)

    async def story() -> None:
        tasks = [asyncio.ensure_future(bench.one(str(i), {"deadline_s": 1.0}, gone)) for i, gone in enumerate(leave)]
        done, late = await asyncio.wait(tasks, timeout=1.01)
        assert not late
        for task in done:
            if not task.cancelled():
                served = task.result()
                assert (served.prediction is None) == (served.error is not None)
                if preset and not isinstance(served.error, ModelError):
                    assert served.prediction is not None  # with a last rung there is always an answer
        await asyncio.sleep(0.001)

    run_virtual(story(), bench.loop)
    assert len(bench.records) == len(leave)
    assert len({record.id for record in bench.records}) == len(leave)
    bench.assert_clean()
