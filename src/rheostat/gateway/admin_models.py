"""The operator's pages about models: which are in memory, and to load, unload, pin and unpin those loaded on demand."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from rheostat.errors import ModelError, NotFound

if TYPE_CHECKING:
    from rheostat.pool import Model
    from rheostat.router import Router

MODELS = "/admin/models"
UNLOAD_WAIT_S = 30.0
"""An answer to `unload` waits this long for calls that use the model."""
ACTIONS = ("load", "unload", "pin", "unpin")


class ModelPages:
    """`GET /admin/models`, and `POST /admin/models/NAME/ACTION` with one of `ACTIONS`."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def page(self, method: str, path: str) -> tuple[int, Any]:
        """Answer one request: the status and what to send. 409 says that it was not done, and why.

        Raises:
            NotFound: there is no such page or model.
        """
        if path == MODELS and method in ("GET", "HEAD"):
            return 200, {"models": [self._told(model) for model in self._router.plan.pool.models.values()]}
        name, _, action = path.removeprefix(f"{MODELS}/").rpartition("/")
        if method != "POST" or action not in ACTIONS:
            raise NotFound(
                f"there is no such admin page for this method; POST {MODELS}/NAME/ACTION has {', '.join(ACTIONS)}"
            )
        model = self._router.plan.pool.models.get(name)
        if model is None:
            known = ", ".join(self._router.plan.pool.models)
            raise NotFound(f"there is no model {name[:80]!r}; known: {known}", "name")
        why = await self._done(model, action)
        status = 200 if why is None else 409
        return status, {"done": why is None, "error": why, "model": self._told(model)}

    async def _done(self, model: Model, action: str) -> str | None:
        """Do it; return why not, or None."""
        guest = model.on_demand
        if guest is None:
            where = (
                "it is not in this process"
                if model.remote
                else "it is always in memory: set `resident: false` to change that"
            )
            return f"model {model.name}: {where}"
        residency = guest.residency
        if action in ("pin", "unpin"):
            residency.pin(guest, action == "pin")
        elif action == "load":
            try:
                await asyncio.to_thread(residency.load, guest, True)
            except ModelError as error:
                return self._router.masker.mask(str(error))
        elif guest.holding.pinned:
            return "it is pinned: unpin it first"
        elif not await asyncio.to_thread(residency.unload, guest, UNLOAD_WAIT_S):
            return f"calls still use it after {UNLOAD_WAIT_S:g} s; it goes when they end"
        return None

    def _told(self, model: Model) -> dict[str, Any]:
        status = model.status(self._router.clock.monotonic())
        return {"name": model.name, "version": status["version"], "in_flight": status["in_flight"], **status["residency"]}
