"""Watches the traffic: every record passes here on its way to nowhere, and what is not as usual rings."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterable, Sequence
from math import ceil
from zlib import crc32

from rheostat.clock import Clock, SystemClock
from rheostat.types import Feedback, RouteRecord
from rheostat.watch.accuracy import AccuracyFall
from rheostat.watch.alerts import Alert, Alerts, Change
from rheostat.watch.confidence import ConfidenceShift
from rheostat.watch.cost import CostOverrun
from rheostat.watch.failing import Failing
from rheostat.watch.finding import Monitor
from rheostat.watch.flapping import Flapping
from rheostat.watch.inputs import InputDrift
from rheostat.watch.latency import Percentiles, Slowness
from rheostat.watch.settings import WatchSettings
from rheostat.watch.shares import ShareDrift
from rheostat.watch.weights import WeightCollapse

_LOOKS = 15  # in a window
_PER_S = 500
"""Records a second that are looked at; of more, every second, third, ... one, by a hash of its id."""
_log = logging.getLogger("rheostat.watch")
Entry = RouteRecord | Feedback


class Watch:
    """A sink of records that keeps only counts, and tells what is not as usual; may be asked from any thread.

    Args:
        settings: what is compared, and when it rings.
    """

    def __init__(self, settings: WatchSettings | None = None, clock: Clock | None = None) -> None:
        self.settings = settings or WatchSettings()
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._written_at = self._clock.monotonic()
        self._look_at = 0.0
        self._alerts = Alerts()
        self._slowness = Slowness(self.settings)
        failing = Failing(self.settings)
        self._by_kind: dict[str, Monitor] = {
            "share_drift": ShareDrift(self.settings),
            "weight_collapse": WeightCollapse(self.settings),
            "confidence_shift": ConfidenceShift(self.settings),
            "input_drift": InputDrift(self.settings),
            "model_slow": self._slowness,
            "router_slow": self._slowness,
            "flapping": Flapping(self.settings),
            "cost_overrun": CostOverrun(self.settings),
            "errors": failing,
            "fallbacks": failing,
            "overflow": failing,
            "accuracy": AccuracyFall(self.settings),
        }
        self._monitors = tuple(dict.fromkeys(self._by_kind.values()))

    def write(self, entries: Sequence[Entry]) -> None:
        """Take note of what was recorded just now."""
        with self._lock:
            now = self._clock.monotonic()
            records = sum(isinstance(entry, RouteRecord) for entry in entries)
            step = ceil(records / max(1.0, _PER_S * (now - self._written_at)))
            self._written_at = now
            for entry in entries:
                if step > 1 and isinstance(entry, RouteRecord) and crc32(entry.id.encode("utf-8", "replace")) % step:
                    continue
                self._observe(entry, now)
            changes = self._look(now, self._clock.wall())
        self._told(changes)

    def close(self) -> None:
        """Nothing has to be kept."""

    def look(self) -> None:
        """Look whether something is not as usual now, if that is due; for times in which nothing is recorded."""
        with self._lock:
            changes = self._look(self._clock.monotonic(), self._clock.wall())
        self._told(changes)

    async def looks(self) -> None:
        """Look now and then, until cancelled."""
        while True:
            await asyncio.sleep(float(self.settings.window) / _LOOKS)
            await asyncio.to_thread(self.look)

    def replay(self, entries: Iterable[Entry]) -> list[Change]:
        """Watch what was recorded earlier, by its own times; returns every alert that began or ended."""
        changes: list[Change] = []
        with self._lock:
            now = 0.0
            for entry in entries:
                elapsed = entry.elapsed_s if isinstance(entry, RouteRecord) else 0.0
                now = max(now, entry.wall + elapsed)
                self._observe(entry, now)
                changes += self._look(now, now)
        return changes

    def ringing(self) -> list[Alert]:
        """Return what rings now, the oldest first."""
        with self._lock:
            return self._alerts.ringing()

    def counts(self) -> dict[str, float]:
        """Return how many alerts of each kind ring now; kinds of which none does count 0."""
        counts = dict.fromkeys(self._by_kind, 0.0)
        for alert in self.ringing():
            counts[alert.kind] += 1.0
        return counts

    def ended(self) -> list[Alert]:
        """Return the last alerts that are over, the last first."""
        with self._lock:
            return self._alerts.ended()

    def accept(self, alert_id: str) -> Alert | None:
        """End an alert by taking what happens now for usual; None when none of this id rings."""
        with self._lock:
            alert = self._alerts.end(alert_id, self._clock.wall())
            if alert is not None:
                self._by_kind[alert.kind].accept(alert.subject)
        if alert is not None:
            _log.info("alert %s is over by hand: %s", alert.kind, alert.subject)
        return alert

    def percentiles(self) -> dict[tuple[str, str], Percentiles]:
        """Return the times of the window: by model, version, route, path and a route's own time."""
        with self._lock:
            return self._slowness.percentiles(self._clock.monotonic())

    def _observe(self, entry: Entry, now: float) -> None:
        if isinstance(entry, RouteRecord):
            if entry.completes or entry.status == "rejected":
                return
            for monitor in self._monitors:
                monitor.observe(entry, now)
        else:
            for monitor in self._monitors:
                monitor.judged(entry, now)

    def _look(self, now: float, wall: float) -> list[Change]:
        if now < self._look_at:
            return []
        self._look_at = now + float(self.settings.window) / _LOOKS
        return self._alerts.update((found for monitor in self._monitors for found in monitor.findings(now)), wall)

    @staticmethod
    def _told(changes: Sequence[Change]) -> None:
        for change in changes:
            alert = change.alert
            if change.what == "raised":
                _log.warning("alert %s: %s: %s. %s", alert.kind, alert.subject, alert.text, alert.advice)
            else:
                _log.info("alert %s is over: %s", alert.kind, alert.subject)
