"""Whether what is asked looks as it usually does."""

from __future__ import annotations

from collections.abc import Iterator

from rheostat.types import RouteRecord
from rheostat.watch.compare import SHIFTED, shifted
from rheostat.watch.finding import Finding
from rheostat.watch.keyed import Keyed
from rheostat.watch.settings import WatchSettings
from rheostat.watch.sketch import Sketch
from rheostat.watch.windows import Windows

_LENGTH = "length of the input"


class InputDrift(Keyed[tuple[str, str], Sketch]):
    """Finds a signal, or the length of the inputs, whose distribution on a route moved away from the usual one."""

    def __init__(self, settings: WatchSettings) -> None:
        super().__init__(settings, Sketch)

    def observe(self, record: RouteRecord, now: float) -> None:
        """Count the input's length and the signals."""
        route, at = record.route, self.kept.at
        if record.input is not None:
            at((route, _LENGTH), now).add(float(record.input.length))
        for name, value in record.signals.items():
            at((route, name), now).add(value)

    def judge(self, key: tuple[str, str], windows: Windows[Sketch], now: float) -> Iterator[Finding]:
        """Compare the distributions."""
        recent, usual = windows.recent(now), windows.usual()
        least = self.settings.least
        if recent.total < least or usual.total < least:
            return
        apart = shifted(usual, recent)
        if apart is None:
            return
        route, name = key
        here, there = recent.quantile(0.5) or 0.0, usual.quantile(0.5) or 0.0
        yield Finding(
            kind="input_drift",
            subject=f"route {route}, {name if name == _LENGTH else f'signal {name}'}",
            text=f"the distribution moved (stability index {apart:.2f}): the median is {here:.4g}, {there:.4g} is usual",
            value=apart,
            usual=SHIFTED,
            requests=recent.total,
        )
