"""The candidates, and the frozen view of them that a decision gets."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from rheostat.pool.batching import Batched
from rheostat.pool.model import Model
from rheostat.pool.prepared_beside import PreparedBeside
from rheostat.pool.worker.workers import Workers
from rheostat.resilience.health import EjectionSettings, ejected
from rheostat.types import PoolView

HALF = EjectionSettings()
VIEW_AGE_S = 0.02
"""A view is made anew when a breaker turns, and otherwise when it is older than this."""


class Pool:
    """Models by name. It decides which unhealthy ones are out.

    `groups` are the models of each route (default: one of all), of which `ejection` bounds how many may be out.
    """

    def __init__(
        self,
        models: Mapping[str, Model],
        groups: Sequence[Collection[str]] = (),
        ejection: EjectionSettings = HALF,
    ) -> None:
        self.models = dict(models)
        self.groups = tuple(groups) or (tuple(self.models),)
        self.ejection = ejection
        self._view: PoolView = {}
        self._viewed = float("-inf")
        for model in self.models.values():
            model.on_change = self._changed
        self._changed()

    def __getitem__(self, name: str) -> Model:
        return self.models[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.models)

    def __contains__(self, name: object) -> bool:
        return name in self.models

    @property
    def batched(self) -> dict[str, Batched]:
        """Those that take several requests' rows in a call."""
        return {name: model.batched for name, model in self.models.items() if model.batched is not None}

    @property
    def workers(self) -> dict[str, Workers]:
        """The processes of those that have some."""
        return {name: model.workers for name, model in self.models.items() if model.workers is not None}

    @property
    def prepared(self) -> dict[str, PreparedBeside]:
        """Those whose rows are prepared beside them."""
        return {name: model.prepared for name, model in self.models.items() if model.prepared is not None}

    def view(self, now: float, fresh: bool = False) -> PoolView:
        """Return the state of every model as of `now`; at most VIEW_AGE_S old, or made anew when it has to be `fresh`."""
        if fresh or now - self._viewed > VIEW_AGE_S:
            self._view = {name: model.view(now) for name, model in self.models.items()}
            self._viewed = now
        return self._view

    def _changed(self) -> None:
        self._viewed = float("-inf")
        models = self.models
        unhealthy = {name: model.health.since for name, model in models.items() if not model.health.healthy}
        out = [name for name, model in models.items() if model.breaker.name == "open"] if unhealthy else ()
        gone = ejected(unhealthy, out, self.groups, self.ejection.max_ejected) if unhealthy else ()
        for name, model in models.items():
            model.ejected = name in gone
