"""Texts that end an answer, in a text that grows."""

from __future__ import annotations

from collections.abc import Sequence


class Stops:
    """Takes a text piece by piece and hands out what is certain to stand before every one of `stops`."""

    def __init__(self, stops: Sequence[str]) -> None:
        self.stopped = False
        self._stops = stops
        self._held = ""

    def feed(self, text: str) -> str:
        """Return what can be handed out; nothing more once the answer has `stopped`."""
        held = self._held + text
        found = [at for stop in self._stops if (at := held.find(stop)) >= 0]
        if found:
            self.stopped, self._held = True, ""
            return held[: min(found)]
        size = begins_stop(held, self._stops)
        self._held = held[len(held) - size :]
        return held[: len(held) - size]

    def end(self) -> str:
        """Return what was held at the end of the text."""
        return self._held


def begins_stop(text: str, stops: Sequence[str]) -> int:
    """Return how many characters at the end of a text may be the beginning of one of `stops`."""
    return max((_overlap(text, stop) for stop in stops), default=0)


def _overlap(text: str, stop: str) -> int:
    return next((size for size in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:size])), 0)
