"""Streams in virtual time: who may stream, the three limits, what follows a failure, and nothing left behind."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rheostat.engine.engine import Engine, Lane, Plan, Served
from rheostat.engine.journey import Route
from rheostat.engine.stream import Stream
from rheostat.errors import ModelError, NoAnswer, RheostatError
from rheostat.policies import models_of, parse_policy
from rheostat.pool import Model, Pool
from rheostat.resilience.holds import Holds
from rheostat.resilience.ladder import FallbackSettings, Preset
from rheostat.resilience.stream import StreamLimits, next_limit
from rheostat.testing import Act, Flow, ScriptedStream, VirtualLoop, run_virtual, scripted_model, streaming_model
from rheostat.types import Prediction, Request, RouteRecord
from rheostat.types.duration import Duration

LIMITS = StreamLimits(first=Duration(2.0), gap=Duration(5.0), total=Duration(60.0))
BUSY = ModelError("upstream_error", "overloaded")


class Said:
    """What a client of one stream got."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.error: RheostatError | None = None
        self.at: list[float] = []
        self.served: Served | None = None
        self.record: RouteRecord | None = None
        self.took = 0.0


class Bench:
    def __init__(self, policy: object, *models: Model, **fallback: Any) -> None:
        self.loop = VirtualLoop()
        self.records: list[RouteRecord] = []
        self.pool = Pool({model.name: model for model in models})
        parsed = parse_policy(policy)
        links = {model.name: model.link() for model in models}
        route = Route(policy=parsed, fallback=FallbackSettings(**fallback), links=links, default=models_of(parsed)[0])
        self.plan = Plan(version="v", lanes={"default": Lane(name="default", route=route)}, pool=self.pool)
        self.engine = Engine(self.loop, Holds(), (self.records.append,))

    async def ask(self, *, deadline_s: float = 50_000.0, slow_s: float = 0.0, leave_after: int = 1 << 30) -> Said:
        now = self.loop.time()
        request = Request(id=f"r{len(self.records)}", data="x", text="x", received=now, deadline=now + deadline_s)
        said = Said()
        async with Stream(lambda outlet: self.engine.serve(self.plan, request, outlet)) as stream:
            try:
                async for text in stream:
                    said.texts.append(text)
                    said.at.append(self.loop.time() - now)
                    if len(said.texts) >= leave_after:
                        break
                    if slow_s:
                        await asyncio.sleep(slow_s)
            except RheostatError as error:
                said.error = error
            said.served = stream.served
        said.took = self.loop.time() - now
        said.record = self.records[-1]
        for model in self.pool.models.values():
            assert (model.in_flight, len(model.waiting)) == (0, 0)
            assert getattr(model.backend, "running", 0) == 0
        assert self.engine.in_flight == 0
        return said

    def run(self, **how: Any) -> Said:
        return run_virtual(self.ask(**how), self.loop)


def backend(model: Model) -> ScriptedStream:
    assert isinstance(model.backend, ScriptedStream)
    return model.backend


def test_a_long_healthy_stream_is_not_cut() -> None:
    a = streaming_model("a", Flow(("x",) * 30, 1.0, 1.0), limits=LIMITS)
    said = Bench("a", a).run(deadline_s=5.0)
    assert said.texts == ["x"] * 30
    assert said.error is None
    assert said.at[0] == pytest.approx(1.0)
    assert said.served is not None
    assert said.served.prediction == Prediction("x" * 30)
    attempt = said.record.outcomes[0].attempts[0]  # type: ignore[union-attr]
    assert (attempt.pieces, attempt.first_s) == (30, pytest.approx(1.0))
    assert a.latency_s < 2.0  # a long answer is not a slow model


def test_no_first_text_falls_back_without_a_trace() -> None:
    b = streaming_model("b", Flow(("B", "!")))
    bench = Bench("a", streaming_model("a", Flow(hang=True), limits=LIMITS, peers=("b",)), b, retry=0)
    said = bench.run()
    assert said.texts == ["B", "!"]
    assert said.took == pytest.approx(2.0)
    assert said.record is not None
    assert said.record.level == 2
    assert "stream limit first" in str(said.record.outcomes[0].attempts[0].failure)


def test_a_gap_ends_with_an_error_and_no_second_model() -> None:
    a = streaming_model("a", Flow(("p", "q"), gap_s=1.0, hang=True), limits=LIMITS, peers=("b",), lighter="b")
    b = streaming_model("b", Flow(("B",)))
    said = Bench("a", a, b, retry=2, preset=Preset(label="never")).run()
    assert said.texts == ["p", "q"]
    assert isinstance(said.error, NoAnswer)
    assert said.took == pytest.approx(6.0)
    assert (backend(a).calls, backend(b).calls) == (1, 0)
    record = said.record
    assert record is not None
    assert record.status == "error"
    assert record.label is None
    assert record.error is not None
    assert "failed after first piece (2 went out): stream limit gap" in record.error
    assert record.outcomes[0].attempts[0].pieces == 2
    assert a.breaker.failures == 1


def test_the_total_limit() -> None:
    a = streaming_model("a", Flow(("x",) * 100, gap_s=1.0), limits=LIMITS)
    said = Bench("a", a).run()
    assert said.took == pytest.approx(60.0)
    assert "stream limit total" in str(said.error)


def test_a_slow_client_slows_the_model_and_no_limit_fires() -> None:
    a = streaming_model("a", Flow(tuple(map(str, range(20)))), limits=LIMITS)
    bench = Bench("a", a)

    async def main() -> None:
        task = asyncio.ensure_future(bench.ask(slow_s=10.0))
        await asyncio.sleep(35.0)
        assert backend(a).taken <= 6  # four were taken by the client, one waits, one is being handed over
        said = await task
        assert said.texts == [str(number) for number in range(20)]
        assert said.error is None

    run_virtual(main(), bench.loop)


@pytest.mark.parametrize("then", [{"cut": True}, {"then": ModelError("reset", "connection reset")}, {"then": BUSY}])
def test_failure_after_the_first_piece(then: dict[str, Any]) -> None:
    a = streaming_model("a", Flow(("one", "two", "three"), **then), peers=("b",))
    b = streaming_model("b", Flow(("zwei",)))
    said = Bench("a", a, b, retry=2).run()
    assert said.texts == ["one", "two", "three"]
    assert isinstance(said.error, NoAnswer)
    assert backend(b).calls == 0
    assert a.breaker.failures == 1


@pytest.mark.parametrize("then", [{"cut": True}, {"then": BUSY}])
def test_failure_before_the_first_piece_is_tried_again_and_falls_back(then: dict[str, Any]) -> None:
    a = streaming_model("a", Flow(**then), Flow(("again",)))
    said = Bench("a", a, retry=1).run()
    assert said.texts == ["again"]
    assert said.record is not None
    assert said.record.level == 1
    a, b = streaming_model("a", Flow(**then), peers=("b",)), streaming_model("b", Flow(**then))
    said = Bench("a", a, b, retry=0).run()
    assert said.texts == []
    assert isinstance(said.error, NoAnswer)
    assert said.record is not None
    assert [attempt.model for attempt in said.record.outcomes[0].attempts] == ["a", "b"]


def test_leaving_in_the_middle_gives_the_place_back() -> None:
    a = streaming_model("a", Flow(("x",) * 10, gap_s=1.0), Flow(("good",)), max_concurrency=1)
    bench = Bench("a", a)

    async def main() -> None:
        said = await bench.ask(leave_after=3)
        assert said.texts == ["x"] * 3
        assert said.record is not None
        assert said.record.status == "cancelled"
        assert backend(a).cancelled == 1
        assert a.breaker.failures == 0
        assert (await bench.ask()).texts == ["good"]

    run_virtual(main(), bench.loop)


def test_a_cascade_streams_only_its_last_word() -> None:
    small = scripted_model("small", Act(Prediction("no", 0.2)))
    large = streaming_model("large", Flow(("a", "b")))
    said = Bench({"cascade": {"stages": ["small", "large"], "threshold": 0.9}}, small, large).run()
    assert said.texts == ["a", "b"]
    small = streaming_model("small", Flow(("n", "o")))
    said = Bench(
        {"cascade": {"stages": ["small", "large"], "threshold": 0.9}}, small, streaming_model("large", Flow(("a", "b")))
    ).run()
    assert said.texts == ["a", "b"]  # the small one has no confidence, so nothing of it may go out


def test_after_pieces_not_even_an_answer_in_hand_is_given() -> None:
    small = scripted_model("small", Act(Prediction("no", 0.2)))
    large = streaming_model("large", Flow(("a",), cut=True), lighter="small")
    said = Bench({"cascade": {"stages": ["small", "large"], "threshold": 0.9}}, small, large, preset=Preset(label="p")).run()
    assert said.texts == ["a"]
    assert isinstance(said.error, NoAnswer)


def test_what_cannot_stream_comes_as_one_piece() -> None:
    assert Bench("a", scripted_model("a", Act(Prediction("yes", 0.9), 0.1))).run().texts == ["yes"]
    a = streaming_model("a", Flow(then=BUSY))
    assert Bench("a", a, retry=0, preset=Preset(label="preset")).run().texts == ["preset"]


def test_the_deadline_holds_until_the_first_text() -> None:
    said = Bench("a", streaming_model("a", Flow(hang=True)), retry=0).run(deadline_s=0.5)
    assert said.took == pytest.approx(0.5)
    assert said.error is not None


@given(st.floats(0, 100), st.floats(0, 100), st.integers(0, 3), st.floats(0, 100))
def test_the_next_limit_is_never_negative_and_is_the_nearest(waited: float, since: float, pieces: int, left: float) -> None:
    wait, name = next_limit(LIMITS, waited, since, pieces, left)
    due = {"total": 60.0 - waited} | ({"gap": 5.0 - since} if pieces else {"first": 2.0 - waited, "deadline": left})
    assert wait == max(0.0, min(due.values()))
    assert due[name] == min(due.values())


FLOWS = st.builds(
    Flow,
    pieces=st.lists(st.text(min_size=1, max_size=3), max_size=5).map(tuple),
    delay_s=st.sampled_from([0.0, 0.0, 1.0, 3.0]),
    gap_s=st.sampled_from([0.0, 0.0, 1.0, 6.0]),
    then=st.sampled_from([None, None, BUSY, ModelError("rate_limited", "slow down"), ModelError("reset", "gone")]),
    cut=st.booleans(),
    hang=st.sampled_from([False, False, True]),
)


def is_whole(flow: Flow) -> bool:
    return bool("".join(flow.pieces).strip()) and flow.then is None and not flow.cut and not flow.hang


@settings(max_examples=1_000, deadline=None)
@given(
    st.lists(FLOWS, min_size=1, max_size=3), st.lists(FLOWS, min_size=1, max_size=3), st.integers(0, 2), st.booleans(),
    st.sampled_from([0.0, 0.0, 2.0]), st.sampled_from([1 << 30, 1 << 30, 1, 2]), st.booleans(),
)  # fmt: skip
def test_no_text_is_doubled_lost_or_silently_cut(
    a_flows: list[Flow], b_flows: list[Flow], retry: int, peer: bool, slow_s: float, leave_after: int, cascade: bool
) -> None:
    a = streaming_model("a", *a_flows, limits=LIMITS, max_concurrency=1, queue=1, peers=("b",) if peer else ())
    b = streaming_model("b", *b_flows, limits=LIMITS, max_concurrency=1)
    policy: object = {"cascade": {"stages": ["a", "b"], "threshold": 0.5}} if cascade else "a"
    said = Bench(policy, a, b, retry=retry, peer=peer, lighter=False).run(slow_s=slow_s, leave_after=leave_after)
    text = "".join(said.texts)
    played = [flow for flows in (a_flows, b_flows) for flow in flows]
    if len(said.texts) >= leave_after:
        assert any("".join(flow.pieces).startswith(text) for flow in played) or said.served is not None
        return
    if said.error is None:  # whole: the text of just one flow that ended well
        wholes = ["".join(flow.pieces) for flow in played if is_whole(flow)]
        assert text in wholes or text in [whole.strip() for whole in wholes]
        assert said.record is not None
        assert said.record.label == text.strip()
    elif text:  # broken off: the beginning of one flow, and said so
        assert any("".join(flow.pieces).startswith(text) for flow in played)
        assert "failed after first piece" in str(said.error)
        assert max(a.breaker.failures, b.breaker.failures) <= 1 + retry
