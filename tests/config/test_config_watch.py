"""Watching: every way a file changes is seen, a bad one is told, and the watch goes on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pathlib
import shutil
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from config_files import PARTS, with_model
from test_config_policy_file import CONFIG, write

from rheostat.config import Loaded, load_config, watch
from rheostat.errors import ConfigError

PATIENCE_S = 20.0


def text(cost: int) -> str:
    return with_model(f"cost: {cost}")


@contextlib.asynccontextmanager
async def watching(path: pathlib.Path, **options: Any) -> AsyncIterator[asyncio.Queue[Loaded | ConfigError]]:
    heard: asyncio.Queue[Loaded | ConfigError] = asyncio.Queue()
    task = asyncio.create_task(watch(str(path), heard.put, parts=PARTS, settle_s=0.03, **options))
    await asyncio.sleep(0.2)  # the first look is taken
    try:
        yield heard
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def good(heard: asyncio.Queue[Loaded | ConfigError]) -> Loaded:
    result = await asyncio.wait_for(heard.get(), PATIENCE_S)
    assert isinstance(result, Loaded), result
    return result


async def bad(heard: asyncio.Queue[Loaded | ConfigError]) -> str:
    result = await asyncio.wait_for(heard.get(), PATIENCE_S)
    assert isinstance(result, ConfigError), result
    return str(result)


def in_place(path: pathlib.Path, content: str) -> None:
    path.write_text(content)


def renamed(path: pathlib.Path, content: str) -> None:
    draft = path.with_name(".draft")
    draft.write_text(content)
    draft.replace(path)


@pytest.mark.parametrize("change", [in_place, renamed])
def test_each_way_to_write_is_seen(tmp_path: pathlib.Path, change: Callable[[pathlib.Path, str], None]) -> None:
    async def scene() -> None:
        path = tmp_path / "config.yaml"
        path.write_text(text(1))
        async with watching(path) as heard:
            for cost in (2, 3):
                change(path, text(cost))
                assert (await good(heard)).config.models["a"].cost == cost
            assert heard.empty()

    asyncio.run(scene())


def test_a_swapped_link_is_seen(tmp_path: pathlib.Path) -> None:
    """As Kubernetes mounts a ConfigMap: config.yaml -> ..data/config.yaml, ..data -> ..one, then -> ..two."""

    async def scene() -> None:
        for name, cost in (("..one", 1), ("..two", 2)):
            (tmp_path / name).mkdir()
            (tmp_path / name / "config.yaml").write_text(text(cost))
        (tmp_path / "..data").symlink_to("..one")
        path = tmp_path / "config.yaml"
        path.symlink_to("..data/config.yaml")
        async with watching(path) as heard:
            (tmp_path / "..new").symlink_to("..two")
            os.replace(tmp_path / "..new", tmp_path / "..data")
            shutil.rmtree(tmp_path / "..one")
            assert (await good(heard)).config.models["a"].cost == 2
            (tmp_path / "..two" / "config.yaml").write_text(text(3))
            assert (await good(heard)).config.models["a"].cost == 3

    asyncio.run(scene())


def test_bad_files_are_told_and_outlived(tmp_path: pathlib.Path) -> None:
    async def scene() -> None:
        path = tmp_path / "config.yaml"
        path.write_text(text(1))
        async with watching(path) as heard:
            path.write_text("models: [")
            assert "not YAML" in await bad(heard)
            path.write_text("")
            assert "the file is empty" in await bad(heard)
            path.write_text(text(1)[:40])
            assert "line " in await bad(heard)
            path.write_text(text(1))
            assert (await good(heard)).config.models["a"].cost == 1
            path.unlink()
            assert "No such file" in await bad(heard)
            path.write_text(text(1))
            assert (await good(heard)).config.models["a"].cost == 1
            path.write_text(text(1).replace("policy: a", "policy: b"))
            assert "unknown model `b`" in await bad(heard)
            assert heard.empty()

    asyncio.run(scene())


def test_the_same_content_again_says_nothing(tmp_path: pathlib.Path) -> None:
    async def scene() -> None:
        path = tmp_path / "config.yaml"
        path.write_text(text(1))
        async with watching(path) as heard:
            for change in (in_place, renamed, in_place):
                change(path, text(1))
                await asyncio.sleep(0.2)
            (tmp_path / "other.yaml").write_text("x")
            path.write_text(text(2))
            assert (await good(heard)).config.models["a"].cost == 2
            assert heard.empty()

    asyncio.run(scene())


def test_a_change_before_the_watch_began_is_not_lost(tmp_path: pathlib.Path) -> None:
    async def scene() -> None:
        path = tmp_path / "config.yaml"
        path.write_text(text(1))
        running = load_config(str(path), {}, PARTS)
        async with watching(path, since=running.version) as heard:
            assert heard.empty()
        path.write_text(text(2))
        async with watching(path, since=running.version) as heard:
            assert (await good(heard)).config.models["a"].cost == 2

    asyncio.run(scene())


def test_policy_files_are_watched_too_and_what_was_missing_may_come(tmp_path: pathlib.Path) -> None:
    async def scene() -> None:
        path = tmp_path / "config.yaml"
        (tmp_path / "tuned").mkdir()
        path.write_text(CONFIG.replace("tuned.yaml", "tuned/tuned.yaml"))
        write(tmp_path / "tuned")
        async with watching(path) as heard:
            write(tmp_path / "tuned", policy={"cascade": {"stages": ["a", "b"], "threshold": 0.5}})
            assert (await good(heard)).policies["default"].threshold == 0.5  # type: ignore[attr-defined]
            shutil.rmtree(tmp_path / "tuned")
            assert "tuned/tuned.yaml cannot be read" in await bad(heard)
            (tmp_path / "tuned").mkdir()
            write(tmp_path / "tuned")
            assert (await good(heard)).policies["default"].threshold == 0.1 + 0.2  # type: ignore[attr-defined]
            path.write_text(text(1).replace("cost: 1", "calibration: c.json"))
            assert "there is no file c.json" in await bad(heard)
            (tmp_path / "c.json").write_text("{}")
            assert (await good(heard)).config.models["a"].calibration == "c.json"

    asyncio.run(scene())


def test_writes_beside_the_config_are_not_logged(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> Loaded:
        path = tmp_path / "rheostat.yaml"
        path.write_text(text(1))
        async with watching(path) as heard:
            (tmp_path / "service.log").write_text("a line")  # a log in this folder must not bring forth itself
            await asyncio.sleep(0.2)
            path.write_text(text(2))
            return await good(heard)

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
    assert [record for record in caplog.records if record.name.startswith("watchfiles")] == []


def test_what_the_listener_raises_ends_the_watch(tmp_path: pathlib.Path) -> None:
    async def scene() -> None:
        path = tmp_path / "config.yaml"
        path.write_text(text(1))
        running = load_config(str(path), {}, PARTS)
        path.write_text(text(2))

        async def listener(_: Loaded | ConfigError) -> None:
            raise RuntimeError("the listener's own")

        with pytest.raises(RuntimeError, match="the listener's own"):
            await asyncio.wait_for(watch(str(path), listener, since=running.version, parts=PARTS), PATIENCE_S)

    asyncio.run(scene())
