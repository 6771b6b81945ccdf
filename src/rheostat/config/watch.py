"""Hears of changes to the config and says what came of them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pathlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from typing import Any

from rheostat.config.load import Loaded, Reading, content_of, read_config
from rheostat.config.parts import Parts
from rheostat.errors import ConfigError

POLL_MS = 1000
"""How often the files are looked at even when nothing was heard (network file systems report nothing)."""
SETTLE_S = 0.1
"""A change is read once the files have stayed the same for so long, so that a file is not read half written."""
SETTLE_LIMIT_S = 2.0
"""A file that never rests is read after this time all the same."""


async def watch(
    path: str,
    on_change: Callable[[Loaded | ConfigError], Awaitable[None]],
    *,
    since: str | None = None,
    env: Mapping[str, str] | None = None,
    parts: Parts | None = None,
    settle_s: float = SETTLE_S,
) -> None:
    """Call `on_change` each time the config or one of its policy files has other content; runs until cancelled.

    Folders are watched, not files, so that a write in place, an atomic rename and a swapped symbolic link (Kubernetes)
    are all seen. A file that is deleted, empty or half written is a ConfigError, and watching goes on. The same content
    again says nothing. `on_change` is awaited before the next change is looked at.

    Args:
        path: the config file.
        on_change: gets the new config, or why it cannot be used. What it raises ends the watch.
        since: the version that was read; a change made after that is reported at once. Default: the file as it is now.
        env, parts: as for load_config.
        settle_s: seconds without a change before files are read.
    """
    # it tells of every write in the folder; where the log itself lies there, each line would bring the next
    logging.getLogger("watchfiles.main").setLevel(logging.WARNING)
    reading = await asyncio.to_thread(read_config, path, env, parts)
    if since is not None and not reading.content.startswith(since):
        await on_change(_outcome(reading))
    while True:
        async with contextlib.aclosing(_stirrings(reading.files)) as stirrings:
            async for _ in stirrings:
                # a refused config is tried again without a change: what it lacked may lie outside it
                if reading.error is not None or await asyncio.to_thread(content_of, reading.files) != reading.content:
                    break
        await _settled(reading.files, settle_s)
        before = reading
        reading = await asyncio.to_thread(read_config, path, env, parts)
        if reading.error is not None and len(reading.files) < len(before.files):
            # a broken file may not name its policy files; they are listened to until it is good again
            content = await asyncio.to_thread(content_of, before.files)
            reading = Reading(None, reading.error, before.files, content)
        if reading.content != before.content or (before.error is not None and reading.loaded is not None):
            await on_change(_outcome(reading))


def _outcome(reading: Reading) -> Loaded | ConfigError:
    return reading.loaded or reading.error or ConfigError([], "")


async def _stirrings(files: Iterable[str]) -> AsyncGenerator[None, None]:
    """Yield when something happened in the folders of these files, and every POLL_MS."""
    from watchfiles import awatch

    while True:
        folders = sorted(_folders(files))
        if not folders:
            await asyncio.sleep(POLL_MS / 1000)
            yield
            continue
        events: AsyncGenerator[Any, None] = awatch(
            *folders,
            watch_filter=None,
            debounce=50,
            step=20,
            rust_timeout=POLL_MS,
            yield_on_timeout=True,
            recursive=False,
        )
        with contextlib.suppress(OSError):  # a folder vanished; those that are left are watched from the next round on
            async with contextlib.aclosing(events):
                async for _ in events:
                    yield
                    if sorted(_folders(files)) != folders:
                        break


def _folders(files: Iterable[str]) -> set[str]:
    """Return the existing folders of the files and of everything that symbolic links on the way point to."""
    folders: set[str] = set()
    for name in files:
        file = pathlib.Path(name).absolute()
        for _ in range(8):
            folders.add(str(file.parent))
            folders.add(str(file.parent.resolve()))
            if not file.is_symlink():
                break
            file = file.parent / file.readlink()
    return {folder for folder in folders if pathlib.Path(folder).is_dir()}


async def _settled(files: tuple[str, ...], settle_s: float) -> None:
    waited = 0.0
    before = await asyncio.to_thread(content_of, files)
    while waited < SETTLE_LIMIT_S:
        await asyncio.sleep(settle_s)
        waited += settle_s
        now = await asyncio.to_thread(content_of, files)
        if now == before:
            return
        before = now
