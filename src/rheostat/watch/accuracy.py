"""Whether answers are as often right as they usually are, as far as somebody says so later."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Self

from rheostat.types import Feedback, RouteRecord
from rheostat.watch.compare import shares_apart
from rheostat.watch.finding import Finding
from rheostat.watch.keyed import Keyed
from rheostat.watch.settings import WatchSettings
from rheostat.watch.windows import Windows

_WAITING = 50_000  # answers whose judgement may still come
_FALL = 0.05
_SURE = 4.0


class Right:
    """How many answers were judged, and how many of them were right."""

    __slots__ = ("judged", "right")

    def __init__(self) -> None:
        self.judged = 0
        self.right = 0

    def merge(self, other: Self) -> None:
        """Add the other's."""
        self.judged += other.judged
        self.right += other.right


class AccuracyFall(Keyed[tuple[str, str], Right]):
    """Finds a route, or the part of it that one model answers, that is right less often than usual, or than wanted."""

    def __init__(self, settings: WatchSettings) -> None:
        super().__init__(settings, Right)
        self._answers: OrderedDict[str, tuple[str, str, str]] = OrderedDict()

    def observe(self, record: RouteRecord, now: float) -> None:  # noqa: ARG002
        """Remember what was said."""
        if record.label is None:
            return
        self._answers[record.id] = (record.route, record.selected_model, record.label)
        if len(self._answers) > _WAITING:
            self._answers.popitem(last=False)

    def judged(self, feedback: Feedback, now: float) -> None:
        """Count an answer as right or wrong; only the first judgement of a request counts."""
        if feedback.label is None:
            return
        answer = self._answers.pop(feedback.request_id, None)
        if answer is None:
            return
        route, model, label = answer
        for part in ("", model) if model else ("",):
            right = self.kept.at((route, part), now)
            right.judged += 1
            right.right += label == feedback.label

    def judge(self, key: tuple[str, str], windows: Windows[Right], now: float) -> Iterator[Finding]:
        """Compare with the floor and with what is usual."""
        recent, usual, settings = windows.recent(now), windows.usual(), self.settings
        if recent.judged < settings.least:
            return
        here = recent.right / recent.judged
        there = usual.right / usual.judged if usual.judged >= settings.least else None
        fell = there is not None and there - here >= _FALL
        fell = fell and shares_apart(recent.right, recent.judged, usual.right, usual.judged) <= -_SURE
        low = settings.accuracy is not None and here < settings.accuracy
        if not fell and not low:
            return
        route, model = key
        limit = f"{settings.accuracy:.1%} are wanted" if low else f"{there or 0.0:.1%} are usual"
        yield Finding(
            kind="accuracy",
            subject=f"route {route}{f', model {model}' if model else ''}",
            text=f"{here:.1%} of the judged answers are right, {limit}",
            value=here,
            usual=settings.accuracy if low else there,
            requests=recent.judged,
            severity="critical",
        )
