"""The open cases of batching, through a whole router and a model that takes several rows a call."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import joblib  # type: ignore[import-untyped]
import pytest
from sklearn.linear_model import LogisticRegression

from rheostat.config import load_config
from rheostat.engine.engine import Served
from rheostat.errors import FAILURES, ConfigError, ModelError, NoAnswer
from rheostat.pool.batching import Batched
from rheostat.router import Router
from tests.batching import batch_models

BATCH = "{max_rows: 8, max_wait: 50ms}"
ROUTE = "routes: {default: {policy: m, fallback: {retry: 0}}}\n"


@pytest.fixture(autouse=True)
def calls() -> Iterator[list[list[Any]]]:
    batch_models.CALLS.clear()
    batch_models.GATE.set()
    yield batch_models.CALLS
    batch_models.GATE.set()


def written(folder: Path, model: str, more: str = "", batch: str = BATCH) -> str:
    rows = f", batch: {batch}" if batch else ""
    probe = "" if "probe:" in more else ', probe: "x"'
    (folder / "rheostat.yaml").write_text(
        f"models: {{m: {{backend: python, callable: 'tests.batching.batch_models:{model}'{probe}{rows}{more}}}}}\n{ROUTE}"
    )
    return str(folder / "rheostat.yaml")


def routed(path: str, scene: Callable[[Router], Awaitable[None]]) -> None:
    async def main() -> None:
        router = await Router.open(path)
        try:
            batch_models.CALLS.clear()
            await scene(router)
            assert "rheostat_batch_queue{" not in (page := router.metrics.render().decode()) or (
                'rheostat_batch_queue{model="m"} 0\n' in page
            )
        finally:
            await router.aclose()

    asyncio.run(main())


async def ask(router: Router, data: Any, **options: Any) -> Served:
    return await router.serve(router.request(data, **options))


async def together(router: Router, rows: list[Any]) -> list[Served]:
    return list(await asyncio.gather(*[ask(router, row) for row in rows]))


def said(served: Served) -> Any:
    assert served.prediction is not None, served.error
    return served.prediction.output if served.prediction.output is not None else served.prediction.label


def test_case_one_inputs_of_different_length_are_never_joined(tmp_path: Path, calls: list[list[Any]]) -> None:
    chance = random.Random(1)
    rows = [{"vector": [float(fill)] * length} for length, fill in ((10, 1), (17, 1), (10, 2))]
    rows += [{"vector": [chance.random() for _ in range(chance.randrange(1, 9))]} for _ in range(200)]

    async def scene(router: Router) -> None:
        for served, row in zip(await together(router, rows), rows, strict=True):
            assert said(served)["y"] == pytest.approx(sum(row["vector"]), abs=1e-5)

    routed(written(tmp_path, "summed", ", probe: {vector: [1.0]}"), scene)
    assert all(len({len(row["vector"]) for row in call}) == 1 for call in calls)
    assert len(calls) < 100


def test_case_two_everybody_gets_what_he_asked_for(tmp_path: Path, calls: list[list[Any]]) -> None:
    rows = [{"text": "t", "top_k": k, "probabilities": p} for k in (1, 3) for p in (True, False)]

    async def scene(router: Router) -> None:
        await ask(router, rows[0])
        asked = [ask(router, row, request_id=f"id-{number}") for number, row in enumerate(rows)]
        served = list(await asyncio.gather(*asked))
        assert [each.record.id for each in served] == ["id-0", "id-1", "id-2", "id-3"]
        assert [said(each)["top"] for each in served] == [{"a": 0.5}, ["a"], {"a": 0.5, "b": 0.3, "c": 0.2}, ["a", "b", "c"]]

    routed(written(tmp_path, "ranked", ", probe: {text: t, top_k: 1, probabilities: true}"), scene)
    assert max(len(call) for call in calls) > 1  # rows that want different things may still share a call


async def held(router: Router, rows: list[Any]) -> list[Served]:
    """Send rows while the model computes, so that they form one batch."""
    batch_models.GATE.clear()
    first = asyncio.ensure_future(ask(router, "first"))
    await asyncio.sleep(0.01)
    asked = asyncio.ensure_future(together(router, rows))
    await asyncio.sleep(0.01)
    batch_models.GATE.set()
    await first
    return await asked


@pytest.mark.parametrize("bad", ["boom", "mute"], ids=["makes the call raise", "has no answer"])
def test_case_three_one_bad_item_gets_its_own_error(tmp_path: Path, calls: list[list[Any]], bad: str) -> None:
    rows = ["r0", "r1", "r2", "r3", "r4", bad, "r6", "r7"]

    async def scene(router: Router) -> None:
        served = await held(router, rows)
        assert [said(each) for each in served if each.error is None] == [row for row in rows if row != bad]
        (error,) = [each.error for each in served if each.error is not None]
        assert served[5].error is error
        assert isinstance(error, NoAnswer)
        assert error.http_status == 502
        assert len(calls) <= 1 + 9
        calls.clear()
        assert [said(each) for each in await held(router, ["a", "b"])] == ["a", "b"]
        assert len(calls) == 2

    routed(written(tmp_path, "echo"), scene)


def test_case_three_an_item_that_cannot_be_read_is_its_clients_fault(tmp_path: Path) -> None:
    joblib.dump(LogisticRegression().fit([[0.0], [1.0], [6.0], [7.0]], ["low", "low", "high", "high"]), tmp_path / "m")
    digest = hashlib.sha256((tmp_path / "m").read_bytes()).hexdigest()
    model = f"backend: sklearn, path: m, trusted: true, sha256: {digest}, features: [a], batch: {BATCH}"
    (tmp_path / "rheostat.yaml").write_text(f"models: {{m: {{{model}}}}}\n{ROUTE}")

    async def scene(router: Router) -> None:
        rows: list[Any] = [{"a": float(number)} for number in range(8)]
        rows[5] = {"a": "no number"}
        served = await together(router, rows)
        assert [index for index, each in enumerate(served) if each.error is not None] == [5]
        error = served[5].error
        assert isinstance(error, ModelError)
        assert FAILURES[error.kind].status == 400
        assert [said(each) for each in served if each.error is None] == ["low"] * 4 + ["high"] * 3

    routed(str(tmp_path / "rheostat.yaml"), scene)


def test_case_four_a_lone_request_is_answered_at_once_and_as_without_batching(tmp_path: Path) -> None:
    answers: list[Any] = []

    async def scene(router: Router) -> None:
        for number in range(20):
            served = await ask(router, f"r{number}")
            assert served.prediction is not None
            answers.append((served.prediction, served.record.status, served.record.selected_model, served.record.cost))
            await asyncio.sleep(0.02)
        backend = router.plan.pool["m"].backend
        if isinstance(backend, Batched):
            assert backend.tally.reasons == {"alone": 20}
            assert backend.tally.waits_sum < 20 * 0.005

    routed(written(tmp_path, "echo", batch="{max_rows: 32, max_wait: 20ms}"), scene)
    routed(written(tmp_path, "echo", batch=""), scene)
    assert answers[:20] == answers[20:]


def test_case_four_without_batch_there_is_none(tmp_path: Path) -> None:
    async def scene(router: Router) -> None:
        model = router.plan.pool["m"]
        assert model.batched is None
        assert not isinstance(model.backend, Batched)
        assert model.status(0.0)["batch"] is None
        assert "rheostat_batch" not in router.metrics.render().decode()

    routed(written(tmp_path, "echo", batch=""), scene)


def test_case_five_a_thousand_in_parallel_and_a_list_in_its_order(tmp_path: Path, calls: list[list[Any]]) -> None:
    async def scene(router: Router) -> None:
        served = await together(router, [f"number {number}" for number in range(1_000)])
        assert [said(each) for each in served] == [f"number {number}" for number in range(1_000)]
        listed = await router.apredict_batch([f"row {number}" for number in range(100)])
        assert [said(each) for each in listed] == [f"row {number}" for number in range(100)]
        page = router.metrics.render().decode()
        assert 'rheostat_batch_inferences_total{model="m"} 1100\n' in page
        assert f'rheostat_batch_executions_total{{model="m"}} {len(calls)}\n' in page
        assert 'rheostat_batch_rows_sum{model="m"} 1100\n' in page
        assert 'rheostat_batch_wait_seconds_count{model="m"} 1100\n' in page
        assert 'rheostat_batch_dispatch_total{model="m",reason="full"}' in page

    routed(written(tmp_path, "echo", batch="{max_rows: 16, max_wait: 10ms}"), scene)
    assert len(calls) < 400


def test_case_five_an_answer_too_few_is_nobodys(tmp_path: Path) -> None:
    async def scene(router: Router) -> None:
        served = await held(router, ["r0", "short", "r2"])
        failures = [each.record.outcomes[0].failure for each in served]
        assert [failure.kind if failure is not None else None for failure in failures] == ["bad_output"] * 3
        assert all(failure is not None and "got 2" in failure.message for failure in failures)
        assert router.plan.pool["m"].breaker.failures == 1  # one call, one failure

    routed(written(tmp_path, "echo"), scene)


def test_case_six_clients_that_leave(tmp_path: Path, calls: list[list[Any]]) -> None:
    async def scene(router: Router) -> None:
        for number in range(10):
            batch_models.GATE.clear()
            first = asyncio.ensure_future(ask(router, "first"))
            await asyncio.sleep(0.01)
            eight = [asyncio.ensure_future(ask(router, f"{number}.{place}")) for place in range(8)]
            await asyncio.sleep(0.005)
            eight[0].cancel()
            await asyncio.sleep(0)
            batch_models.GATE.set()
            await first
            eight[1].cancel()
            served = await asyncio.gather(*eight[2:])
            assert [said(each) for each in served] == [f"{number}.{place}" for place in range(2, 8)]
        assert all(f"{number}.0" not in call for call in calls for number in range(10))
        assert len(await together(router, [f"after {number}" for number in range(100)])) == 100
        assert router.plan.pool["m"].in_flight == 0

    routed(written(tmp_path, "echo"), scene)


def test_a_batch_that_fails_as_a_whole_counts_once_against_the_model(tmp_path: Path, calls: list[list[Any]]) -> None:
    async def scene(router: Router) -> None:
        served = await held(router, ["r0", "boom", "r2", "r3", "r4", "r5", "r6", "r7"])
        kinds = [each.record.outcomes[0].failure.kind for each in served if each.record.outcomes[0].failure is not None]
        assert kinds == ["uncertain"] * 8  # it may have done its work for any of them
        assert len(calls) == 2  # and is not asked again
        assert router.plan.pool["m"].breaker.name == "closed"

    routed(written(tmp_path, "echo", ", side_effects: true"), scene)


def test_a_model_elsewhere_that_takes_several_rows_is_batched_too(tmp_path: Path, calls: list[list[Any]]) -> None:
    async def scene(router: Router) -> None:
        served = await together(router, [f"r{number}" for number in range(50)])
        assert [said(each) for each in served] == [f"r{number}" for number in range(50)]
        assert router.plan.pool["m"].status(0.0)["runs"] == "remote"

    routed(written(tmp_path, "aecho"), scene)
    assert max(len(call) for call in calls) == 8


def test_urgent_requests_go_first(tmp_path: Path, calls: list[list[Any]]) -> None:
    async def scene(router: Router) -> None:
        batch_models.GATE.clear()
        tasks = [asyncio.ensure_future(ask(router, "first"))]
        await asyncio.sleep(0.01)
        tasks += [asyncio.ensure_future(ask(router, f"low {number}", priority="low")) for number in range(10)]
        tasks += [asyncio.ensure_future(ask(router, f"high {number}", priority="high")) for number in range(3)]
        await asyncio.sleep(0.005)
        batch_models.GATE.set()
        await asyncio.gather(*tasks)

    routed(written(tmp_path, "echo"), scene)
    assert calls[1][:4] == ["high 0", "high 1", "high 2", "low 0"]


def test_a_reload_keeps_a_batched_model_that_did_not_change(tmp_path: Path) -> None:
    path = written(tmp_path, "echo")

    async def scene(router: Router) -> None:
        before = router.plan.pool["m"]
        await ask(router, "r")
        Path(path).write_text(Path(path).read_text() + "labels: []\n")
        assert await router.reload()
        assert router.plan.pool["m"] is before
        Path(path).write_text(Path(path).read_text().replace("max_rows: 8", "max_rows: 4"))
        assert await router.reload(), router.last_error
        assert router.plan.pool["m"] is not before
        assert said(await ask(router, "r")) == "r"

    routed(path, scene)


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("backend: http, url: 'http://x.test/', batch: {}", "models.m.batch: this backend asks for one row a call"),
        ("backend: openai, base_url: 'http://x.test/', model: x, batch: {}", "this backend asks for one row a call"),
        ("backend: python, callable: 'a:b', each: true, batch: {}", "`each: true` asks for one row a call"),
        ("backend: python, callable: 'a:b', run: inline, batch: {}", "models.m.run: a batched model computes in threads"),
        ("backend: python, callable: 'a:b', max_concurrency: 8, batch: {}", "max_concurrency: every row of a batch takes a"),
        (
            "backend: python, callable: 'a:b', breaker: {maxConcurrent: 40}, batch: {instances: 2}",
            "breaker.maxConcurrent: every row of a batch takes a place, and 40 of them never fill 2 x 32 rows",
        ),
        ("backend: python, callable: 'a:b', adaptive: {}, batch: {}", "models.m.adaptive: finds a limit by the time of"),
        ("backend: python, callable: 'a:b', batch: {max_rows: 1}", "`max_rows` must lie between 2 and 4096"),
        ("backend: python, callable: 'a:b', batch: {max: 8}", "unknown key; did you mean `max_rows`|models.m.batch.max"),
    ],
)
def test_what_cannot_be_batched_is_refused_with_the_place(tmp_path: Path, model: str, told: str) -> None:
    (tmp_path / "rheostat.yaml").write_text(f"models: {{m: {{{model}}}}}\n{ROUTE}")
    with pytest.raises(ConfigError) as error:
        load_config(str(tmp_path / "rheostat.yaml"))
    assert any(part in str(error.value) for part in told.split("|"))
