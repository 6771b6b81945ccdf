"""Calls that are cut off, by another answer, the deadline or a client that leaves: told like any other."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rheostat.resilience.breaker import BreakerSettings
from rheostat.testing import Act, run_virtual, scripted_model
from rheostat.types import Attempt, Outcome, Prediction, Request, RouteRecord
from tests.engine.test_engine import BROKEN, HANG, SURE, Bench, pair

PARALLEL = {"delegate": {"weak": "fast", "strong": "large", "low": 0.2, "high": 0.8, "parallel": True}}
BOTH = {"blend": {"weights": {"fast": 0.5, "large": 0.5}}}


def of(record: RouteRecord, model: str) -> Outcome:
    (outcome,) = [each for each in record.outcomes if each.model == model]
    return outcome


def told(attempts: tuple[Attempt, ...]) -> list[tuple[str, float, float, str]]:
    return [
        (each.model, round(each.started_s, 3), round(each.elapsed_s, 3), each.failure.kind if each.failure else "ok")
        for each in attempts
    ]


def left(bench: Bench, after_s: float, **options: Any) -> RouteRecord:
    """Serve a request whose client leaves; returns its record."""

    async def story() -> None:
        with pytest.raises(asyncio.CancelledError):
            await bench.one("0", options, leave_after=after_s)
        await asyncio.sleep(0)

    run_virtual(story(), bench.loop)
    bench.assert_clean()
    (record,) = bench.records
    assert record.status == "cancelled"
    return record


def test_a_call_whose_answer_is_not_needed() -> None:
    bench = Bench(PARALLEL, pair([SURE], [BROKEN, HANG]), retry=1)
    (served,) = bench.run()
    large = of(served.record, "large")
    assert served.record.cancelled == ("large",)
    assert large.failure is not None
    assert large.failure.kind == "cancelled"
    assert told(large.attempts) == [("large", 0.0, 0.1, "upstream_error")]
    assert (large.cost, served.record.cost) == (40.0, 41.0)
    bench = Bench(PARALLEL, pair([Act(Prediction("a", 0.95), 0.4)], [BROKEN, HANG]), retry=1)
    (served,) = bench.run()
    first, second = told(of(served.record, "large").attempts)
    assert first == ("large", 0.0, 0.1, "upstream_error")
    assert second[3] == "cancelled"
    assert second[1] + second[2] == pytest.approx(0.4)
    assert served.record.cost == 81.0  # both were started
    assert bench.pool["large"].breaker.failures == 1  # the one that failed by itself
    bench.assert_clean()


def test_a_call_that_never_began_is_told_and_costs_nothing() -> None:
    bench = Bench(PARALLEL, pair([SURE], [HANG], max_concurrency=1, queue=5))

    async def story() -> None:
        first = asyncio.ensure_future(bench.engine.executor.run(bench.pool["large"], Request(id="first", data="x"), 1, 0.0))
        await asyncio.sleep(0)
        served = await bench.one("0", {})
        large = of(served.record, "large")
        assert (large.attempts, large.cost, served.record.cost) == ((), 0.0, 1.0)
        assert large.failure is not None
        assert "before it could be asked" in large.failure.message
        first.cancel()
        await asyncio.wait((first,))

    run_virtual(story(), bench.loop)
    bench.assert_clean()


def test_an_answer_that_came_at_the_same_moment_is_kept_though_nobody_heard_it() -> None:
    bench = Bench(PARALLEL, pair([SURE], [SURE]))
    (served,) = bench.run()
    large = of(served.record, "large")
    assert (served.record.label, large.ok, len(large.attempts), large.attempts[0].failure) == ("a", True, 1, None)
    assert served.record.weights == {"fast": 1.0}
    assert served.record.cost == 41.0


def test_a_peer_that_is_cut_off_is_told_with_the_model_it_stood_in_for() -> None:
    slow = Act(Prediction("a", 0.95), 0.5)
    models = pair([slow], [BROKEN], peers=("peer",)) | {"peer": scripted_model("peer", HANG, cost=7.0)}
    bench = Bench(PARALLEL, models, retry=0)
    (served,) = bench.run()
    large = of(served.record, "large")
    assert large.served_by == "peer"
    assert told(large.attempts) == [("large", 0.0, 0.1, "upstream_error"), ("peer", 0.1, 0.4, "cancelled")]
    assert (served.record.cancelled, served.record.cost) == (("peer",), 48.0)


@pytest.mark.parametrize("policy", ["large", BOTH, PARALLEL])
def test_a_client_that_leaves(policy: Any) -> None:
    bench = Bench(policy, pair([HANG], [BROKEN, HANG]), retry=1)
    record = left(bench, 0.9)
    large = of(record, "large")
    first, second = told(large.attempts)
    assert first == ("large", 0.0, 0.1, "upstream_error")
    assert second[3] == "cancelled"
    assert second[1] + second[2] == pytest.approx(0.9)
    assert record.cost == (80.0 if policy == "large" else 81.0)
    assert bench.pool["large"].breaker.failures == 1


def test_the_deadline_says_the_same_of_a_call_alone_and_beside_others() -> None:
    """Half of the time that a model is normally given is enough to blame it; less is the client's hurry."""
    for deadline, patience, kind in ((1.0, 2.0, "timeout"), (1.0, 2.5, "deadline")):
        for policy in ("large", BOTH):
            models = pair([SURE], [HANG], timeout=patience, breaker=BreakerSettings(failure_threshold=3))
            bench = Bench(policy, models, retry=0)
            for served in bench.run(*[{"deadline_s": deadline}] * 3):
                assert told(of(served.record, "large").attempts) == [("large", 0.0, 1.0, kind)]
            assert (bench.pool["large"].breaker.name == "open") is (kind == "timeout"), (policy, kind)
            bench.assert_clean()


def test_members_that_hang_up_to_the_deadline_open_their_breakers() -> None:
    breaker = BreakerSettings(failure_threshold=3)
    bench = Bench(BOTH, pair([HANG], [HANG], breaker=breaker), retry=0)
    for served in bench.run(*[{"deadline_s": 1.0}] * 3):
        assert told(of(served.record, "large").attempts) == [("large", 0.0, 1.0, "timeout")]
        assert served.record.cost == 41.0
    assert bench.pool["large"].breaker.name == "open"
    bench.assert_clean()
