"""Answers that are given again: where that makes no sense."""

from __future__ import annotations

import os

from rheostat.cache.settings import CacheSettings
from rheostat.config.draft import Draft


def check_cache(draft: Draft) -> None:
    """Check that a cache changes nothing but time and cost, and that its settings have an effect."""
    settings = draft.decoder.decoded.get("cache", CacheSettings())
    routes = {name: route for name, route in draft.routes.items() if route is not None}
    for name, route in routes.items():
        if route.cache is None:
            continue
        if (near := route.cache.semantic) is not None:
            path = f"routes.{name}.cache.semantic"
            if draft.task != "chat":
                draft.wrong(path, "compares the questions of conversations: it needs `task: chat`")
            if not os.path.isdir(os.path.join(draft.base, near.encoder)):
                draft.wrong(f"{path}.encoder", f"there is no folder {near.encoder} (paths start from the config's folder)")
        for model in route.models or tuple(draft.models):
            known = draft.models.get(model)
            if known is not None and known.side_effects:
                told = f"the model `{model}` has side effects, which an answer from the cache would leave out; remove one"
                draft.wrong(f"routes.{name}.cache", told)
    if len(routes) < len(draft.routes) or not isinstance(settings, CacheSettings):
        return  # wrong, which was said already
    fresh = any(route.cache is not None for route in routes.values())
    if "cache" in draft.sections and not fresh and not any(route.fallback.cached for route in routes.values()):
        told = "no route has `cache` or `fallback: {cached: true}`, so this changes nothing"
        draft.doubtful("cache", told)
    elif settings.redis is not None and not fresh:
        draft.doubtful("cache.redis", "no route has `cache`, so nothing is shared")
