"""`GET /v1/models`: what a client may name, as OpenAI's clients read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rheostat.router import Router


def listed(router: Router, created: int) -> list[dict[str, Any]]:
    """Return the models, and where language models are asked before them the routes, each with what it `serves`.

    `created`, in seconds since 1970, is when the gateway was made: of the models themselves nobody tells it.
    """
    config, pool = router.config, router.plan.pool
    told = {"object": "model", "created": created, "owned_by": "rheostat"}
    models: list[dict[str, Any]] = [
        {
            "id": name, **told, "version": settings.version, "tags": settings.tags, "tier": settings.tier,
            "cost": settings.cost, "weak_at": settings.weak_at,
        }
        for name, settings in config.models.items()
    ]  # fmt: skip
    if config.task != "chat":
        return models
    for model in models:
        model["serves"] = pool[model["id"]].settings.kinds if model["id"] in pool else ()
    routes = [
        {"id": name, **told, "serves": sorted({kind for link in lane.route.links.values() for kind in link.kinds or ()})}
        for name, lane in router.plan.lanes.items()
        if name not in config.models
    ]
    return routes + models
