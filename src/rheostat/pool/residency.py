"""Loads and unloads the models that are in memory only while they are wanted."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from math import inf
from statistics import median

from msgspec import structs

from rheostat.clock import Clock, SystemClock
from rheostat.errors import ConfigError, ModelError, Problem
from rheostat.pool import memory
from rheostat.pool.backend import Backend
from rheostat.pool.on_demand import OnDemand, Tally
from rheostat.resilience import residency as states
from rheostat.resilience.residency import Holding, MemorySettings, Plan

PATIENCE_S = 5.0
"""A load that lacks room only because of calls that run now waits this long for them to end."""
RELIEF_S = 5.0
"""How often memory is looked at between loads."""
_MEASURES = 5
Gone = list[tuple[OnDemand, Backend]]
_log = logging.getLogger("rheostat.pool")


class Residency:
    """The on-demand models of one gateway, within the limits of `settings`; may be used from any thread.

    Loads run one at a time, so that what a model takes can be measured and what fits can be known.
    """

    def __init__(self, settings: MemorySettings | None = None, clock: Clock | None = None) -> None:
        self.settings = settings or MemorySettings()
        self.tallies: dict[str, Tally] = {}
        self._clock = clock or SystemClock()
        self._ceilings: tuple[memory.Ceiling, ...] = ()
        self._guests: dict[str, OnDemand] = {}
        self._serial = count(1)
        self._changed = threading.Condition()  # guards every holding; never held while something is opened or closed
        self._loads = threading.Lock()
        # One thread opens and closes: the C library keeps what is freed for the thread that freed it.
        self._mover = ThreadPoolExecutor(1, thread_name_prefix="load")

    def host(
        self, name: str, keep_s: float, size: int, first: Callable[[], Backend], reopen: Callable[[], Backend]
    ) -> OnDemand:
        """Load a model for the first time with `first`, and take it in; later loads use `reopen`.

        Others may have to go for it, even those that are not kept long enough yet. `size` is a guess in bytes that holds
        until it is measured.

        Raises:
            ConfigError: there is no room for it.
            RheostatError: what `first` raised.
        """
        with self._changed:
            self._bounded()
            tally = self.tallies.setdefault(name, Tally())
            holding = states.loading(Holding(bytes=size, keep_s=keep_s))
            guest = OnDemand(self, name, f"{name}#{next(self._serial)}", holding, reopen, tally)
            self._guests[guest.key] = guest
        try:
            guest.labels = self._load(guest, first, True).labels
        except ModelError as error:
            self.remove(guest)
            raise ConfigError([Problem("resident", None, f"{error}: raise `memory.limit`")]) from None
        except BaseException:
            self.remove(guest)
            raise
        self.leave(guest)
        return guest

    def enter(self, guest: OnDemand, forced: bool = False) -> Backend:
        """Return the model's backend, loaded; it stays in memory until `leave`.

        With `forced` a load is tried whatever came of the last one, and others go for it that are not kept long enough yet.

        Raises:
            ModelError: `unavailable`.
        """
        with self._changed:
            if guest.holding.state == "loaded" and guest.backend is not None:
                guest.holding = states.entered(guest.holding, self._clock.monotonic())
                return guest.backend
            if guest.holding.state != "loading" and not forced and (wait := guest.wait_s(self._clock.monotonic())):
                raise ModelError("unavailable", guest.why, retry_after_s=wait)
        began = self._clock.monotonic()
        backend = self._brought(guest, forced)
        with self._changed:
            guest.tally.waits += 1
            guest.tally.wait_s += self._clock.monotonic() - began
        return backend

    def load(self, guest: OnDemand, forced: bool = False) -> None:
        """Load it, if it is not in memory; `forced` as with `enter`.

        Raises:
            ModelError: `unavailable`.
        """
        self.enter(guest, forced)
        self.leave(guest)

    def leave(self, guest: OnDemand) -> None:
        """Take note that a call which entered has ended."""
        gone: Gone = []
        with self._changed:
            guest.holding = states.left(guest.holding, self._clock.monotonic())
            if not guest.holding.users:
                if guest.holding.state == "unloaded":
                    self._take(guest, gone)
                    self._freed()
                self._changed.notify_all()
        self._close(gone)

    def unload(self, guest: OnDemand, timeout_s: float = 0.0) -> bool:
        """Unload it; calls that use it end first, waited for up to `timeout_s` seconds. Returns True when it is gone.

        New calls get `unavailable` until then; the next one after that loads it again.
        """
        gone: Gone = []
        until = self._clock.monotonic() + timeout_s
        with self._changed:
            self._until(guest, "loading", until)
            self._send_off(guest, gone)
        self._close(gone)
        with self._changed:
            self._until(guest, "unloading", until)
            return guest.holding.state != "unloading"

    def pin(self, guest: OnDemand, pinned: bool) -> None:
        """Let it never be evicted while it is in memory; or let it again."""
        with self._changed:
            guest.holding = structs.replace(guest.holding, pinned=pinned)
            self._freed()

    def remove(self, guest: OnDemand) -> None:
        """Give it up for good. Returns at once: its memory is given back in a thread, or when its last call ends."""
        gone: Gone = []
        with self._changed:
            guest.closed = True
            self._send_off(guest, gone)
            if guest.holding.state == "unloaded":
                self._guests.pop(guest.key, None)
        if gone:
            threading.Thread(target=self._close, args=(gone,), name="unload").start()

    def relieve(self) -> None:
        """Unload what was used longest ago if memory is fuller than `memory.high`."""
        with self._changed:
            if not any(guest.loaded for guest in self._guests.values()):
                return
            now = self._clock.monotonic()
            gone = self._evict(states.relieve(self._holdings(), memory.room(self._bounded(), self.settings), now), now)
        self._close(gone)

    async def watch(self) -> None:
        """Look at the memory now and then, until cancelled."""
        while True:
            await asyncio.sleep(RELIEF_S)
            await asyncio.to_thread(self.relieve)

    def _brought(self, guest: OnDemand, forced: bool) -> Backend:
        """Wait for the load that runs, or load the model, and enter it."""
        with self._changed:
            while guest.holding.state == "loading":
                self._changed.wait()
            now = self._clock.monotonic()
            if guest.holding.state == "loaded" and guest.backend is not None:
                guest.holding = states.entered(guest.holding, now)
                return guest.backend
            if guest.closed or guest.holding.state == "unloading":
                raise ModelError("unavailable", "it is being unloaded", retry_after_s=states.FIRST_RETRY_S)
            guest.holding = states.wanted(guest.holding, now)
            if not forced and (wait := guest.wait_s(now)):
                raise ModelError("unavailable", guest.why, retry_after_s=wait)
            guest.holding = states.loading(guest.holding)
        try:
            return self._load(guest, guest.reopen, forced)
        except ModelError:
            raise
        except Exception as error:  # whatever a backend raises
            _log.error("model %s: %s", guest.name, guest.why)
            raise ModelError("unavailable", guest.why, retry_after_s=guest.wait_s(self._clock.monotonic())) from error

    def _load(self, guest: OnDemand, opener: Callable[[], Backend], forced: bool) -> Backend:
        """Bring a model whose state is `loading` into memory, and enter it."""
        until = self._clock.monotonic() + PATIENCE_S
        try:
            while True:
                with self._loads:
                    began = self._clock.monotonic()
                    plan = self._make_room(guest, forced)
                    if not plan.refused:
                        return self._opened(guest, opener, began)
                if not plan.busy or self._clock.monotonic() >= until:
                    break
                with self._changed:
                    self._changed.wait(0.05)
        except BaseException as error:
            with self._changed:
                guest.tally.failures += 1
                why = f"it cannot be loaded: {str(error) or type(error).__name__}"
                self._given_up(guest, states.failed(guest.holding, self._clock.monotonic()), why)
            raise
        with self._changed:
            self._given_up(guest, states.refused(guest.holding, self._clock.monotonic() + plan.retry_after_s), plan.refused)
        raise ModelError("unavailable", plan.refused, retry_after_s=plan.retry_after_s)

    def _given_up(self, guest: OnDemand, holding: Holding, why: str) -> None:
        guest.holding, guest.why = holding, why
        if guest.closed:
            self._guests.pop(guest.key, None)
        self._changed.notify_all()

    def _opened(self, guest: OnDemand, opener: Callable[[], Backend], began: float) -> Backend:
        opened = self._clock.monotonic()
        memory.trim()  # or the model fills what was freed before, and seems to take nothing
        before = memory.process_bytes()
        backend = self._mover.submit(opener).result()
        took = memory.process_bytes() - before
        with self._changed:
            now = self._clock.monotonic()
            size = self._measured(guest, took)
            guest.backend = backend
            guest.holding = states.entered(states.loaded(guest.holding, size, now), now)
            if guest.closed:
                guest.holding = states.sent_off(guest.holding)
            guest.tally.loads += 1
            guest.tally.load_s += now - began
            self._changed.notify_all()
        told = "model %s is loaded: %.0f MiB in %.3f s, %.3f s of it to make room"
        _log.info(told, guest.name, size / 2**20, now - began, opened - began)
        return backend

    def _make_room(self, guest: OnDemand, forced: bool) -> Plan:
        """Unload what has to go, as often as the memory that is really free asks for it."""
        while True:
            with self._changed:
                now = self._clock.monotonic()
                free = memory.room(self._bounded(), self.settings)
                plan = states.make_room(guest.key, self._holdings(), free, now, forced)
                gone = self._evict(plan.evict, now)
            if not gone:
                return plan
            self._close(gone)

    def _bounded(self) -> tuple[memory.Ceiling, ...]:
        if not self._ceilings:
            memory.settle_heaps()
            try:
                self._ceilings = memory.ceilings(self.settings)
            except ValueError as error:
                raise ConfigError([Problem("resident", None, f"it needs `memory`, whose {error}")]) from None
        return self._ceilings

    def _holdings(self) -> dict[str, Holding]:
        return {key: guest.holding for key, guest in self._guests.items()}

    def _evict(self, keys: tuple[str, ...], now: float) -> Gone:
        gone: Gone = []
        for key in keys:
            guest = self._guests[key]
            guest.holding = states.evicted(guest.holding, now)
            guest.tally.evictions += 1
            self._take(guest, gone)
            _log.info("model %s is unloaded to make room", guest.name)
        return gone

    def _send_off(self, guest: OnDemand, gone: Gone) -> None:
        if guest.holding.state == "loaded":
            guest.holding = states.sent_off(guest.holding)
            if guest.holding.state == "unloaded":
                self._take(guest, gone)
                self._freed()

    def _take(self, guest: OnDemand, gone: Gone) -> None:
        if guest.backend is not None:
            gone.append((guest, guest.backend))
            guest.backend = None
        if guest.closed:
            self._guests.pop(guest.key, None)

    def _freed(self) -> None:
        """Whoever found no room may try again; a load that failed keeps its pause."""
        for guest in self._guests.values():
            if not guest.holding.failures and guest.holding.retry_at > -inf:
                guest.holding = structs.replace(guest.holding, retry_at=-inf)

    def _until(self, guest: OnDemand, state: str, until: float) -> None:
        """Wait while the model is in this state."""
        while guest.holding.state == state and (left := until - self._clock.monotonic()) > 0.0:
            self._changed.wait(left)

    def _close(self, gone: Gone) -> None:
        """Close backends and give their memory back; the list is emptied, as whoever refers to one keeps it."""
        if not gone:
            return
        before = memory.process_bytes()
        guests = [guest for guest, _ in gone]
        while gone:
            try:
                self._mover.submit(gone.pop()[1].close).result()
            except Exception:  # a fault in one must keep no other in memory
                _log.exception("a model that was unloaded failed to close")
        expected = sum(guest.holding.bytes for guest in guests)
        freed = memory.give_back(before, expected)
        _log.info("%.0f of %.0f MiB were given back", freed / 2**20, expected / 2**20)
        if len(guests) == 1:
            with self._changed:
                size = self._measured(guests[0], freed)
                guests[0].holding = structs.replace(guests[0].holding, bytes=size)

    def _measured(self, guest: OnDemand, size: int) -> int:
        """Return the median of the last measures, this one among them: what a model took and what came back when it went,
        while others took and gave as well. Less than nothing, or nothing, is no measure: it used what was free."""
        if size > 0:
            guest.sizes = [*guest.sizes, size][-_MEASURES:]
        return int(median(guest.sizes)) if guest.sizes else guest.holding.bytes
