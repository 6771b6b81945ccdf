"""Routes that give answers again, through a whole router: hits, misses, equal requests, versions, tenants, errors."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rheostat.errors import NoAnswer
from rheostat.router import Router

MODELS = """
import time
from rheostat.errors import ModelError

CALLS = []

def slow(row):
    if row == "probe":
        return "probe", 0.9
    CALLS.append(row)
    time.sleep(0.1)
    text = row if isinstance(row, str) else row["text"]
    if text.startswith("fail"):
        raise ModelError("unavailable", "out of order")
    if text.startswith("unsure"):
        return "yes", float("nan")
    return f"{text} {len(CALLS)}", 0.9
"""
CONFIG = """
models:
  a: {{backend: python, callable: "{module}:slow", each: true, run: thread, version: "{version}", probe: probe}}
routes:
  default: {{policy: a, cache: {cache}, fallback: {{retry: 0, {fallback}}}}}
records: {{jsonl: records.jsonl}}
{more}
"""


class House:
    def __init__(self, folder: Path, router: Router, module: str) -> None:
        import importlib

        self.folder = folder
        self.router = router
        self.module = importlib.import_module(module)
        self.module.CALLS.clear()

    @property
    def calls(self) -> int:
        return len(self.module.CALLS)

    async def ask(self, data: object, **options: object) -> tuple[str, str]:
        served = await self.router.apredict(data, **options)
        assert served.prediction is not None
        return served.prediction.label, served.record.cache


def _written(folder: Path, version: str = "1", cache: str = "{ttl: 60s}", fallback: str = "", more: str = "") -> Path:
    module = f"cached_{folder.name}"
    (folder / f"{module}.py").write_text(MODELS)
    path = folder / "rheostat.yaml"
    path.write_text(CONFIG.format(module=module, version=version, cache=cache, fallback=fallback, more=more))
    return path


@contextlib.asynccontextmanager
async def house(folder: Path, **words: str) -> AsyncIterator[House]:
    path = _written(folder, **words)
    router = await Router.open(str(path))
    try:
        yield House(folder, router, f"cached_{folder.name}")
    finally:
        await router.aclose()


def test_the_second_is_given_the_first_ones_answer_and_the_record_says_so(tmp_path: Path) -> None:
    async def run() -> None:
        async with house(tmp_path) as it:
            assert await it.ask("q") == ("q 1", "miss")
            served = await it.router.apredict("q")
            record = served.record
            assert (record.label, record.cache, record.route_type, record.status) == ("q 1", "hit", "cache", "ok")
            assert (record.outcomes, record.cost, record.level, record.selected_model) == ((), 0.0, 0, "a")
            assert record.age_s is not None
            assert it.calls == 1
            assert it.router.plan.pool["a"].in_flight == 0
            page = it.router.metrics.render().decode()
            assert 'rheostat_cache_requests_total{route="default",result="hit"} 1' in page
            assert 'rheostat_cache_requests_total{route="default",result="miss"} 1' in page

    asyncio.run(run())


def test_a_hit_does_not_make_the_answer_younger(tmp_path: Path) -> None:
    async def run() -> None:
        async with house(tmp_path, cache="{ttl: 300ms}") as it:
            assert await it.ask("q") == ("q 1", "miss")
            for _ in range(3):
                await asyncio.sleep(0.05)
                assert (await it.ask("q"))[1] == "hit"
            await asyncio.sleep(0.2)
            assert await it.ask("q") == ("q 2", "miss")

    asyncio.run(run())


def test_no_cache_asks_again_and_keeps_no_store_keeps_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        async with house(tmp_path) as it:
            assert await it.ask("q", no_cache=True, no_store=True) == ("q 1", "bypass")
            assert await it.ask("q") == ("q 2", "miss")
            assert await it.ask("q", no_cache=True) == ("q 3", "bypass")
            assert await it.ask("q") == ("q 3", "hit")
            assert await it.ask("q", skip_route=True) == ("q 4", "bypass")
            assert await it.ask("q") == ("q 3", "hit")

    asyncio.run(run())


@pytest.mark.parametrize("text", ["fail", "unsure"])
def test_failures_and_answers_that_are_no_good_are_not_kept(tmp_path: Path, text: str) -> None:
    async def run() -> None:
        async with house(tmp_path, fallback="preset: {label: none}") as it:
            for number in (1, 2):
                await it.ask(text)
                assert it.calls == number
            assert (await it.ask("good"), await it.ask("good")) == (("good 3", "miss"), ("good 3", "hit"))

    asyncio.run(run())


def test_a_new_version_does_not_answer_from_the_old_cache_and_an_unchanged_one_keeps_its_entries(tmp_path: Path) -> None:
    async def run() -> None:
        async with house(tmp_path) as it:
            assert await it.ask("q") == ("q 1", "miss")
            _written(tmp_path, more="holds: {}")
            _written(tmp_path, more="health: {}")
            assert await it.router.reload()
            assert await it.ask("q") == ("q 1", "hit")
            _written(tmp_path, version="2")
            assert await it.router.reload(), it.router.last_error
            it.module.CALLS.clear()
            assert await it.ask("q") == ("q 1", "miss")
            _written(tmp_path, version="1")
            assert await it.router.reload()
            assert (await it.ask("q"))[1] == "hit"

    asyncio.run(run())


def test_tenants_share_nothing_unless_the_config_says_so(tmp_path: Path) -> None:
    async def run(cache: str, want: str) -> None:
        async with house(tmp_path, cache=cache) as it:
            assert (await it.ask("balance", tenant="t1"))[1] == "miss"
            assert (await it.ask("balance", tenant="t2"))[1] == want

    asyncio.run(run("{ttl: 60s}", "miss"))
    asyncio.run(run("{ttl: 60s, across_tenants: true}", "hit"))


def test_equal_requests_at_once_cause_one_call_and_each_has_its_record(tmp_path: Path) -> None:
    async def run() -> None:
        async with house(tmp_path) as it:
            answers = await asyncio.gather(*(it.ask("hot") for _ in range(100)))
            assert {label for label, _ in answers} == {"hot 1"}
            assert sorted({word for _, word in answers}) == ["miss", "shared"]
            assert it.calls == 1
            assert it.router.engine.in_flight == 0

    asyncio.run(run())


def test_without_coalesce_each_asks_for_itself(tmp_path: Path) -> None:
    async def run() -> None:
        async with house(tmp_path, cache="{ttl: 60s, coalesce: false}") as it:
            await asyncio.gather(*(it.ask("hot") for _ in range(5)))
            assert it.calls == 5

    asyncio.run(run())


def test_a_failed_call_is_shared_once_and_nothing_is_kept(tmp_path: Path) -> None:
    async def run() -> None:
        async with house(tmp_path) as it:
            ended = await asyncio.gather(*(it.ask("fail") for _ in range(50)), return_exceptions=True)
            assert all(isinstance(each, NoAnswer) for each in ended)
            assert it.calls == 1
            with pytest.raises(NoAnswer):
                await it.ask("fail")
            assert it.calls == 2

    asyncio.run(run())


def test_a_leader_with_no_time_left_does_not_take_the_others_along(tmp_path: Path) -> None:
    async def run() -> None:
        async with house(tmp_path) as it:
            hurried = asyncio.ensure_future(it.router.serve(it.router.request("hot", timeout_s=0.02)))
            await asyncio.sleep(0)
            others = await asyncio.gather(*(it.ask("hot") for _ in range(20)))
            assert (await hurried).error is not None
            assert len({label for label, _ in others}) == 1
            assert it.calls == 2

    asyncio.run(run())


def test_a_stream_of_a_kept_answer_is_a_stream(tmp_path: Path) -> None:
    async def run() -> None:
        async with house(tmp_path) as it:
            await it.ask("q")
            async with it.router.stream(it.router.request("q")) as texts:
                assert [text async for text in texts] == ["q 1"]
            assert texts.served is not None
            assert texts.served.record.cache == "hit"

    asyncio.run(run())


def test_distinct_questions_stay_within_the_room(tmp_path: Path) -> None:
    async def run() -> None:
        async with house(tmp_path, more="cache: {entries: 5}") as it:
            for number in range(8):
                await it.ask(f"q{number}")
            status = it.router.status()["cache"]
            assert (status["entries"], status["evicted"]) == (5, 3)
            assert (await it.ask("q7"))[1] == "hit"
            assert (await it.ask("q0"))[1] == "miss"

    asyncio.run(run())
