"""What stands between a router and the versions of its config: keeps what served, goes back, follows other gateways."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from rheostat.config.difference import model_as_in
from rheostat.config.load import Loaded, load_config, read_config
from rheostat.errors import BadRequest, ConfigError, NotFound, Problem, RheostatError, StoreError
from rheostat.pool.stamp import stamp
from rheostat.versions.store import Pin, Stamps, Version, VersionStore

if TYPE_CHECKING:
    from rheostat.clock import Clock
    from rheostat.telemetry import Masker

FILE = "file"
"""In the place of a version: what is in the config's file."""
LOOK_S = 0.25
"""How often a gateway looks whether another one of the same config has gone back, in seconds."""
_AGAIN_S = 5.0
_LOOKED_THROUGH = 1_000  # changes, for the last one in which a model was different
_log = logging.getLogger("rheostat.versions")


class RolledBack(Struct, frozen=True):
    """What going back has done: `version` serves, in the place of `before`. `changed` names models whose files are not as
    they were when the version served."""

    version: str
    before: str
    pinned: bool
    changed: tuple[str, ...] = ()


class Versioning:
    """The versions of one router's config.

    Args:
        path: the config's file.
        lock: held by whoever changes the config in force; `took` is called with it held.
        current: returns the config in force.
        serve: takes a config up whole, or raises a RheostatError and changes nothing.
    """

    def __init__(
        self, store: VersionStore, path: str, clock: Clock, lock: asyncio.Lock, current: Callable[[], Loaded],
        serve: Callable[[Loaded], Awaitable[None]],
    ) -> None:  # fmt: skip
        self.store = store
        self.pin: Pin | None = None
        self.last_error = ""
        self._path = path
        self._clock = clock
        self._current = current
        self._serve = serve
        self._lock = lock
        self._following: asyncio.Task[None] | None = None
        self._retry_at = 0.0

    async def start(self, file: Loaded) -> None:
        """Take note of what serves at the start, `file` being what the config's file says; follow the others from now on."""
        try:
            if self._current().version == file.version:
                await self.store.served(_version(file), "")
            else:
                self.pin = await self.store.pin()
        except StoreError as error:
            self._away(error)
        self._following = asyncio.ensure_future(self._follow())

    def check(self, file: Loaded) -> None:
        """Refuse the config's file where somebody has gone back from what it says.

        Raises:
            ConfigError: it has not changed since.
        """
        if self.pin is not None and self.pin.instead_of == file.version:
            told = f"version {self.pin.version} serves in the place of this file; `rheostat rollback file` serves it again"
            raise ConfigError([Problem("", None, told)], file.path)

    async def took(self, file: Loaded, before: str) -> None:
        """Take note that the config's file was taken up."""
        if file.version == before and self.pin is None:
            return
        self.pin = None
        try:
            await self.store.served(_version(file), before)
        except StoreError as error:
            self._away(error)

    async def go_back(self, version: str | None, model: str | None, who: str, why: str) -> RolledBack:
        """Serve a kept version in the place of what serves now, here at once and in every other gateway of this config.

        Args:
            version: its name or the beginning of it; `file` for what the file says; None: the last one from which nobody
                has gone back, with `model` the last one in which that model's settings were different.
            model: only this model as it was then, all else as it is.

        Raises:
            NotFound: there is no such version or model.
            ConfigError: it cannot be served any more, as a model's file is gone; what serves now stays.
            StoreError: the versions cannot be read or written now; what serves now stays.
        """
        async with self._lock:
            now = self._current()
            if version == FILE:
                return await self._back_to_file(now, model, who, why)
            kept = await self._wanted(now, version, model)
            target = await asyncio.to_thread(load_config, self._path, kept=kept.sources)
            changed = _changed(kept.stamps, stamps_of(target))
            file = await asyncio.to_thread(_in_file, self._path)
            await self._serve(target)
            try:
                if target.version == file:
                    await self.store.released(_version(target), now.version, who, why)
                    self.pin = None
                else:
                    self.pin = await self.store.pinned(_version(target), file, now.version, who, why)
            except StoreError:
                await self._serve(now)  # the others would never hear of it, nor a restart
                raise
            _log.warning("gone back from config %s to %s, for %s: %s", now.version, target.version, who or "?", why or "-")
            return RolledBack(target.version, now.version, self.pin is not None, changed)

    async def aclose(self) -> None:
        """Stop following, and give back the file."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        await asyncio.to_thread(self.store.file.close)

    def status(self) -> dict[str, Any]:
        """Say which version serves in the place of the file, if one does, and whether the versions can be read."""
        file = self.store.file
        return {
            "pinned": None if self.pin is None else self.pin.version,
            "instead_of": None if self.pin is None else self.pin.instead_of,
            "state": "degraded" if file.away else "ok",
            "last_error": self.last_error or file.last_error or None,
        }

    async def _back_to_file(self, now: Loaded, model: str | None, who: str, why: str) -> RolledBack:
        if model is not None:
            raise BadRequest("the file is served whole: leave out `model`", "model")
        file = await asyncio.to_thread(load_config, self._path)
        await self._serve(file)
        try:
            await self.store.released(_version(file), now.version, who, why)
        except StoreError:
            await self._serve(now)
            raise
        self.pin = None
        _log.warning("the config's file serves again, version %s, for %s: %s", file.version, who or "?", why or "-")
        return RolledBack(file.version, now.version, False)

    async def _wanted(self, now: Loaded, version: str | None, model: str | None) -> Version:
        """Return the version to go back to."""
        if model is None:
            return await self.store.version(version or await self.store.last_good(now.version))
        if version is not None:
            kept = await self.store.version(version)
            sources = model_as_in(now.sources, kept.sources, model)
            if sources is None:
                raise NotFound(f"model {model} is now as it was in version {kept.version}", "model")
            return Version("", sources, _of(kept.stamps, model))
        for change in await self.store.changes(_LOOKED_THROUGH):
            try:
                kept = await self.store.version(change.version)
                sources = model_as_in(now.sources, kept.sources, model)
            except NotFound:  # it is not kept any more, or did not have the model
                continue
            if sources is not None:
                return Version("", sources, _of(kept.stamps, model))
        raise NotFound(f"no kept version has model {model[:80]!r} with other settings", "model")

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            if self._clock.monotonic() < self._retry_at:
                continue
            try:
                async with self._lock:
                    pin = await self.store.pin()
                    if pin != self.pin:
                        await self._agree(pin)
            except (RheostatError, OSError) as error:
                self._away(error)
                self._retry_at = self._clock.monotonic() + _AGAIN_S

    async def _agree(self, pin: Pin | None) -> None:
        """Serve what another gateway has gone back to, or the file where it serves again."""
        if pin is None:
            loaded = await asyncio.to_thread(load_config, self._path)
        else:
            kept = await self.store.version(pin.version)
            loaded = await asyncio.to_thread(load_config, self._path, kept=kept.sources)
        await self._serve(loaded)
        self.pin, self.last_error = pin, ""
        _log.warning("config %s is in force, as in the other gateways", loaded.version)

    def _away(self, error: Exception) -> None:
        told = str(error)
        if told != self.last_error:
            _log.error("%s", told)
        self.last_error = told


async def pinned(store: VersionStore, file: Loaded) -> Loaded:
    """Return what a gateway that begins has to serve: the file, or the version that was put in its place.

    Raises:
        ConfigError: that version cannot be served any more.
    """
    try:
        pin = await store.pin()
        if pin is None or pin.instead_of != file.version:
            return file
        kept = await store.version(pin.version)
    except (StoreError, NotFound) as error:
        _log.error("the config's file is served, as versions cannot be read: %s", error)
        return file
    _log.warning("config %s is served in the place of the file: somebody went back to it", pin.version)
    return await asyncio.to_thread(load_config, file.path, kept=kept.sources)


def open_store(loaded: Loaded, clock: Clock, masker: Masker) -> VersionStore | None:
    """Open where versions are kept, if the config says so."""
    settings = loaded.config.versions
    if settings is None:
        return None
    return VersionStore(str(Path(loaded.base) / settings.path), settings.keep, clock, masker.mask)


def stamps_of(loaded: Loaded) -> Stamps:
    """Return what tells of every model that its files are still the same."""
    found = {name: stamp(settings, loaded.base)[1:] for name, settings in loaded.config.models.items()}
    return {name: [list(file[:3]) for file in files] for name, files in found.items() if files}  # type: ignore[index]


def _version(loaded: Loaded) -> Version:
    return Version(loaded.version, loaded.sources, stamps_of(loaded))


def _of(stamps: Stamps, model: str) -> Stamps:
    return {model: stamps[model]} if model in stamps else {}


def _changed(then: Stamps, now: Stamps) -> tuple[str, ...]:
    return tuple(name for name, files in then.items() if [list(file) for file in files] != now.get(name))


def _in_file(path: str) -> str:
    """Return the version of what is in the config's file, whether it can be served or not."""
    return read_config(path).content[:12]
