"""Whether a model is as sure of its answers as it usually is, above all after it was replaced by a new version."""

from __future__ import annotations

from collections.abc import Iterator

from rheostat.types import RouteRecord
from rheostat.watch.compare import SHIFTED, shifted
from rheostat.watch.finding import Finding
from rheostat.watch.keyed import Keyed
from rheostat.watch.settings import WatchSettings
from rheostat.watch.sketch import Sketch
from rheostat.watch.windows import Windows


class ConfidenceShift(Keyed[tuple[str, str, str], Sketch]):
    """Finds a model whose confidences are distributed otherwise than usual: a threshold on them means something else now.

    A new version is compared with the version before it until it is usual itself.
    """

    def __init__(self, settings: WatchSettings) -> None:
        super().__init__(settings, Sketch)
        self._versions: dict[tuple[str, str], list[str]] = {}  # of a route's model: the version before, and the last

    def observe(self, record: RouteRecord, now: float) -> None:
        """Count how sure the models were."""
        for outcome in record.outcomes:
            prediction = outcome.prediction
            if prediction is None or prediction.confidence is None or outcome.served_by not in ("", outcome.model):
                continue
            place, version = (record.route, outcome.model), outcome.version
            versions = self._versions.get(place)
            if versions is None:
                versions = self._versions[place] = [version]
            if version not in versions:
                if len(versions) > 1:
                    self.kept.drop((*place, versions.pop(0)))
                versions.append(version)
            # how unsure it was: near 1 a hundredth is much, and a sketch tells small numbers apart
            self.kept.at((*place, version), now).add(1.0 - prediction.confidence)

    def accept(self, subject: str) -> None:
        """Take the new version's confidences for usual, and forget the version before."""
        for place, versions in self._versions.items():
            if subject == _subject(*place) and len(versions) > 1:
                self.kept.drop((*place, versions.pop(0)))
        super().accept(subject)

    def judge(self, key: tuple[str, str, str], windows: Windows[Sketch], now: float) -> Iterator[Finding]:
        """Compare with the same version earlier, or with the version before."""
        route, model, version = key
        versions = self._versions.get((route, model), [])
        if not versions or version != versions[-1]:
            return
        recent, usual, since = windows.recent(now), windows.usual(), "before"
        least = self.settings.least
        if usual.total < least and len(versions) > 1:
            older = self.kept.get((route, model, versions[0]))
            if older is not None:
                recent.merge(usual)
                usual = older.recent(now)
                usual.merge(older.usual())
                since = f"in version {versions[0]}" if versions[0] else "before"
        if recent.total < least or usual.total < least:
            return
        apart = shifted(usual, recent)
        if apart is None:
            return
        here, there = recent.quantile(0.5) or 0.0, usual.quantile(0.5) or 0.0
        named = f" {version}" if version else ""
        yield Finding(
            kind="confidence_shift",
            subject=_subject(route, model),
            text=f"the confidences of {model}{named} are distributed otherwise than {since} (stability index {apart:.2f}); "
            f"their median is {1.0 - here:.3f}, it was {1.0 - there:.3f}",
            value=apart,
            usual=SHIFTED,
            requests=recent.total,
        )


def _subject(route: str, model: str) -> str:
    return f"route {route}, model {model}"
