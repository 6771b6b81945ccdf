"""L4 through the whole router, in a real event loop: nobody can answer, the promise is made, a model is back, it is kept."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rheostat.config import load_config
from rheostat.errors import ConfigError, NotFound, RheostatError
from rheostat.results.result import Result
from rheostat.router import Router
from rheostat.telemetry.telling import tell
from tests.results.switched import Switched, ended, hurry

CONFIG = """
models:
  large: {backend: python, callable: "MODULE:large", each: true, version: "3", run: inline,
           breaker: {failureThreshold: 2, successThreshold: 1, timeoutSeconds: 0.1}}
routes:
  default: {policy: large, fallback: {peer: false, lighter: false, LADDER}}
MORE
"""
PLACE = "results: {path: results.sqlite}"


class House:
    """A router and the switch of its only model."""

    def __init__(self, router: Router, switch: Switched) -> None:
        self.router = router
        self.up, self.down = switch.up, switch.down

    async def result(self, key: str, tenant: str | None = None) -> Result:
        return await ended(self.router, key, tenant)


def write(folder: Path, ladder: str, more: str = PLACE) -> Switched:
    return Switched(folder, CONFIG.replace("LADDER", ladder).replace("MORE", more))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)


@contextlib.asynccontextmanager
async def house(folder: Path, ladder: str, more: str = PLACE) -> AsyncIterator[House]:
    switch = write(folder, ladder, more)
    async with switch.router() as router:
        yield House(router, switch)


def test_a_promise_is_kept_when_the_model_is_back(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(tmp_path, "later: true") as it:
            it.down()
            served = await it.router.serve(it.router.request("is it?", tenant="acme", request_id="first"))
            assert isinstance(served.error, RheostatError)
            assert served.prediction is None
            assert served.promise is not None
            assert (served.promise.state, served.promise.reason) == ("pending", "")
            key = served.promise.id
            assert key is not None
            assert (await it.router.result(key, "acme")).state == "pending"
            with pytest.raises(NotFound):
                await it.router.result(key, "other")
            with pytest.raises(NotFound):
                await it.router.result(key)
            it.up()
            found = await it.result(key, "acme")
            assert found.state == "done"
            assert found.request_id == "first"
            assert found.prediction is not None
            assert (found.prediction.label, found.prediction.confidence) == ("yes", 0.9)
            assert found.record is not None
            assert (found.record.selected_model, found.record.selected_version, found.record.completes) == (
                "large",
                "3",
                True,
            )
            assert it.router.status()["results"]["completed"] == 1

    asyncio.run(story())


def test_the_same_question_gets_the_earlier_answer_and_another_one_none(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(tmp_path, "cached: true", "") as it:
            assert (await it.router.apredict("is it?")).record.level == 0
            it.down()
            again = await it.router.serve(it.router.request("is it?"))
            assert again.error is None
            assert again.prediction is not None
            assert again.prediction.label == "yes"
            assert (again.record.level, again.record.status) == (4, "degraded")
            assert (again.record.selected_model, again.record.selected_version) == ("large", "3")
            assert again.record.age_s is not None
            assert 0.0 <= again.record.age_s < 15.0
            assert again.promise is None
            assert "L4: an earlier answer to the same question" in "\n".join(tell(again.record))
            other = await it.router.serve(it.router.request("is it not?"))
            assert isinstance(other.error, RheostatError)
            assert other.record.age_s is None
            elsewhere = await it.router.serve(it.router.request("is it?", tenant="other"))
            assert elsewhere.error is not None

    asyncio.run(story())


def test_a_preset_now_and_the_models_answer_later(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(tmp_path, "later: true, preset: {label: unknown}") as it:
            it.down()
            served = await it.router.apredict("is it?")
            assert served.prediction is not None
            assert served.prediction.label == "unknown"
            assert served.record.level == 5
            assert served.promise is not None
            assert served.promise.id is not None
            it.up()
            found = await it.result(served.promise.id)
            assert found.prediction is not None
            assert found.prediction.label == "yes"

    asyncio.run(story())


def test_what_cannot_be_kept_is_not_promised(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(tmp_path, "later: true", "results: {path: results.sqlite, pending: 1}") as it:
            it.down()
            promises = [(await it.router.serve(it.router.request(text))).promise for text in ("a", "b")]
            assert [promise.state for promise in promises if promise is not None] == ["pending", "refused"]
            wrong = await it.router.serve(it.router.request("a", force_model="nobody"))
            assert wrong.promise is None

    asyncio.run(story())


def test_another_process_keeps_the_promise(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(tmp_path, "later: true") as it:
            it.down()
            served = await it.router.serve(it.router.request("is it?"))
            assert served.promise is not None
            key = served.promise.id
            assert key is not None
        async with house(tmp_path, "later: true") as it:
            it.up()
            assert (await it.result(key)).state == "done"

    asyncio.run(story())


def problem(folder: Path, ladder: str, more: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(str(write(folder, ladder, more).path))
    return str(caught.value)


def test_later_without_a_file_is_refused_and_the_fix_is_named(tmp_path: Path) -> None:
    said = problem(tmp_path, "later: true", "")
    assert "routes.default.fallback.later" in said
    assert "path" in said


def test_results_that_no_route_uses_are_doubted(tmp_path: Path) -> None:
    loaded = load_config(str(write(tmp_path, "retry: 0", PLACE).path))
    assert any("changes nothing" in str(doubt) for doubt in loaded.warnings)
