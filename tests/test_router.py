"""The façade on real parts: a config file, models next to it, records, reload."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rheostat import Router, open_router
from rheostat.errors import ConfigError, NotFound

MODELS = """
import time
def fast(rows):
    return [("pos", 0.9) if "good" in row else ("neg", 0.55) for row in rows]
def large(rows):
    return [{"pos": 0.97, "neg": 0.03} if "nice" in row else {"pos": 0.1, "neg": 0.9} for row in rows]
async def slow(rows):
    import asyncio
    await asyncio.sleep(0.2)
    return [("pos", 1.0) for row in rows]
def sleepy(rows):
    time.sleep(0.05)
    return [("pos", 1.0) for row in rows]
"""
CONFIG = """
models:
  fast: {backend: python, callable: "reload_models:fast", cost: 1, labels: [pos, neg]}
  large: {backend: python, callable: "reload_models:large", cost: 40, labels: [pos, neg], version: "VERSION"}
routes:
  default: {policy: {cascade: {stages: [fast, large], threshold: THRESHOLD}}}
records: {jsonl: records.jsonl, sqlite: records.sqlite}
"""

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    (tmp_path / "reload_models.py").write_text(MODELS)

    def put(text: str = CONFIG, threshold: str = "0.8", version: str = "v1") -> str:
        path = tmp_path / "rheostat.yaml"
        path.write_text(text.replace("THRESHOLD", threshold).replace("VERSION", version))
        return str(path)

    return put


def test_ordinary_code_predicts_and_finds_the_record_again(write: Write) -> None:
    with open_router(write()) as router:
        kept, escalated = router.predict("good"), router.predict("nice", session="s1")
        assert (kept.record.selected_model, kept.record.label) == ("fast", "pos")
        assert (escalated.record.selected_model, escalated.record.confidence) == ("large", 0.97)
        found = router.router.record(escalated.record.id)
        assert found.session == "s1"
        assert found.outcomes[0].confidence == 0.55
        with pytest.raises(NotFound):
            router.router.record("nobody")
        answers = router.predict_batch(["good", "nice", "bad"])
        assert [served.record.label for served in answers] == ["pos", "pos", "neg"]
        with pytest.raises(NotFound, match="no route named 'else'"):
            router.predict("x", route="else")
        page = router.router.metrics.render().decode()
        assert 'rheostat_requests_total{route="default",status="ok"} 5' in page
        assert router.status()["models"]["fast"]["breaker"] == "closed"


def test_a_bad_file_changes_nothing_and_a_good_one_is_taken_up(write: Write) -> None:
    async def story() -> None:
        router = await Router.open(write())
        first = router.plan.version
        for broken in ("models: [", CONFIG.replace("large]", "lrage]"), CONFIG.replace("cost: 40", "cots: 40"), ""):
            write(broken)
            assert not await router.reload()
            assert router.plan.version == first
            assert router.last_error
            assert (await router.apredict("nice")).record.selected_model == "large"
        write(threshold="0.5")
        assert await router.reload()
        assert router.last_error is None
        assert router.plan.version != first
        assert (await router.apredict("nice")).record.selected_model == "fast"
        page = router.metrics.render().decode()
        assert 'rheostat_reloads_total{result="failed"} 4' in page
        assert 'rheostat_reloads_total{result="ok"} 1' in page
        write(CONFIG.replace("records.jsonl", "other.jsonl"))
        assert not await router.reload()
        assert "restart" in (router.last_error or "")
        await router.aclose()

    asyncio.run(story())


def test_what_needs_a_restart_is_told_with_its_line(write: Write) -> None:
    path = write(CONFIG + "\nserver: {port: 1}\n")

    async def main() -> None:
        router = await Router.open(path)
        changed = CONFIG + "\nserver: {port: 2}\n"
        write(changed)
        assert not await router.reload()
        line = changed.splitlines().index("server: {port: 2}") + 1
        assert f"line {line}: server.port: cannot change while serving" in (router.last_error or "")
        await router.aclose()

    asyncio.run(main())


def test_requests_in_flight_end_on_what_they_began_with(write: Write) -> None:
    config = CONFIG.replace(":large", ":slow")

    async def story() -> None:
        router = await Router.open(write(config))
        old = router.plan
        running = asyncio.ensure_future(router.apredict("hard"))
        await asyncio.sleep(0.05)
        write(config, version="v2")
        assert await router.reload()
        assert router.plan.pool["fast"] is old.pool["fast"]  # untouched parts stay as they are
        assert router.plan.pool["large"] is not old.pool["large"]
        fresh = await router.apredict("hard")
        before = await running
        assert (before.record.selected_version, before.record.config_version) == ("v1", old.version)
        assert (fresh.record.selected_version, fresh.record.config_version) == ("v2", router.plan.version)
        assert not router._retired
        await router.aclose()

    asyncio.run(story())


def test_a_changed_model_file_is_a_changed_model(write: Write, tmp_path: Path) -> None:
    lexicon = tmp_path / "words.tsv"
    lexicon.write_text("good\t2\nbad\t-2\n")
    config = """
models:
  words:
    backend: rules
    lexicon: words.tsv
    cuts: [{label: neg, below: 0}, {label: pos}]
    default: {label: neg, confidence: 0.5}
routes:
  default: {policy: words, deadline: DEADLINE}
"""

    async def story() -> None:
        router = await Router.open(write(config.replace("DEADLINE", "1s")))
        assert (await router.apredict("bad")).record.label == "neg"
        lexicon.write_text("good\t-2\nbad\t2\n")
        os.utime(lexicon, (1, 1))
        assert await router.reload(), router.last_error
        assert (await router.apredict("bad")).record.label == "pos"
        await router.aclose()

    asyncio.run(story())


def test_heavy_models_do_not_hold_up_the_event_loop(write: Write) -> None:
    async def story() -> None:
        router = await Router.open(write(CONFIG.replace(":large", ":sleepy")))
        assert not router.plan.pool["large"].inline
        assert not router.is_quick("default")
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.002)
                ticks += 1

        ticking = asyncio.ensure_future(tick())
        await asyncio.gather(*(router.apredict("hard") for _ in range(4)))
        ticking.cancel()
        assert ticks >= 3  # the loop went on while 50 ms of work were done elsewhere
        await router.aclose()

    asyncio.run(story())


def test_a_config_that_cannot_be_built_says_everything(write: Write) -> None:
    bad = CONFIG.replace(":large", ":gone").replace(":fast", ":lost")
    with pytest.raises(ConfigError) as caught:
        open_router(write(bad))
    paths = [problem.path for problem in caught.value.problems]
    assert [path.split(".")[1] for path in paths] == ["fast", "large"]


def test_a_librarys_own_error_while_opening_changes_nothing_and_leaves_nothing_open(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rheostat.backends.template import TemplateModel

    closed: list[str] = []
    path = write("models: {a: {backend: template, label: x}}\nroutes: {default: {policy: a}}\n")

    async def run() -> None:
        router = await Router.open(str(path))
        plain = TemplateModel.open

        def broken(self: TemplateModel, base: str) -> Any:
            if self.label == "bad":
                raise OSError("the library said no")
            model = plain(self, base)
            monkeypatch.setattr(model, "close", lambda: closed.append(self.label), raising=False)
            return model

        monkeypatch.setattr(TemplateModel, "open", broken)
        more = "b: {backend: template, label: y}, c: {backend: template, label: bad}"
        write(f"models: {{a: {{backend: template, label: x}}, {more}}}\nroutes: {{default: {{policy: a}}}}\n")
        assert not await router.reload()
        assert "models.c: it could not be opened: OSError: the library said no" in str(router.last_error)
        assert closed == ["y"]
        assert (await router.apredict("q")).record.label == "x"
        await router.aclose()

    asyncio.run(run())
