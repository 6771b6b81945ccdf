"""The candidates, and the frozen view of them that a decision gets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rheostat.pool.model import Model
from rheostat.types import PoolView

VIEW_AGE_S = 0.02
"""A view is made anew when a breaker turns, and otherwise when it is older than this."""


class Pool:
    """Models by name."""

    def __init__(self, models: Mapping[str, Model]) -> None:
        self.models = dict(models)
        self._view: PoolView = {}
        self._viewed = float("-inf")
        for model in self.models.values():
            model.on_change = self._changed

    def __getitem__(self, name: str) -> Model:
        return self.models[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.models)

    def __contains__(self, name: object) -> bool:
        return name in self.models

    def view(self, now: float) -> PoolView:
        """Return the state of every model as of `now` (at most VIEW_AGE_S old)."""
        if now - self._viewed > VIEW_AGE_S:
            self._view = {name: model.view(now) for name, model in self.models.items()}
            self._viewed = now
        return self._view

    def _changed(self) -> None:
        self._viewed = float("-inf")
