"""How many calls one request may still make, all models and their retries together."""

from __future__ import annotations

from collections.abc import Iterable

from rheostat.types import Outcome


class Allotment:
    """Counts the calls of one request; `most` of them are allowed (0: any number).

    Each model that is started holds one, so that models which run beside each other never go beyond it, and as many more
    for its retries as are left. What it did not use comes back with its outcome.
    """

    __slots__ = ("_held", "_spent", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self._spent = 0
        self._held: dict[str, int] = {}

    @property
    def used_up(self) -> bool:
        """True when no further model may be asked."""
        return self.most > 0 and self._left() <= 0

    def started(self, models: Iterable[str]) -> None:
        """Hold one call for each."""
        if self.most:
            self._held.update(dict.fromkeys(models, 1))

    def tries(self, model: str, wanted: int) -> int:
        """Return how often a model that was started may be asked, out of the `wanted` (1 or more) tries."""
        if not self.most:
            return wanted
        held = self._held[model]
        self._held[model] = granted = held + min(max(0, wanted - held), max(0, self._left()))
        return granted

    def ended(self, outcome: Outcome) -> None:
        """Take in what a model used; one that was turned away used nothing."""
        if self.most:
            self._held.pop(outcome.model, None)
            self._spent += len(outcome.attempts) or int(outcome.ok)

    def _left(self) -> int:
        return self.most - self._spent - sum(self._held.values())
