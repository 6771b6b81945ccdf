"""What the field `model` of a language model's API names: a route, or a model by hand."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from rheostat.errors import BadRequest, NotFound, Unsupported
from rheostat.gateway.body import RouteOptions
from rheostat.types import Chat

if TYPE_CHECKING:
    from rheostat.engine.engine import Lane
    from rheostat.resilience.ladder import Link
    from rheostat.router import Router


def way_of(router: Router, row: Chat, page: str) -> RouteOptions:
    """Return the way to a route, or to a model by hand on the first route that has it.

    Raises:
        BadRequest: it is no name.
        NotFound: there is neither.
        Unsupported: nobody there answers what the page asks for.
    """
    if router.config.task != "chat":
        raise NotFound("this gateway serves no language models: its config has no `task: chat`")
    name = row.asks("model")
    if not isinstance(name, str):
        raise BadRequest("`model` is the name of a route, as /v1/models lists them", "model")
    lanes = router.plan.lanes
    if name in lanes:
        if not lane_serves(lanes[name], row.kind):
            raise _unserved(router, f"no model of the route {name!r} serves {page}", row.kind)
        return RouteOptions(name=name)
    if name in router.config.models:
        for route in sorted(lanes, key=lambda each: each != "default"):
            if (link := lanes[route].route.links.get(name)) is not None:
                if not _serves(link, row.kind):
                    raise _unserved(router, f"the model {name!r} does not serve {page}", row.kind)
                return RouteOptions(name=route, force_model=name)
    near = difflib.get_close_matches(name, lanes, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(lanes)}"
    raise NotFound(f"no route and no model is named {name[:80]!r}; {hint}", "model")


def lane_serves(lane: Lane, kind: str) -> bool:
    """Return whether any model of a route answers what is asked for."""
    return any(_serves(link, kind) for link in lane.route.links.values())


def _serves(link: Link, kind: str) -> bool:
    return link.kinds is None or kind in link.kinds


def _unserved(router: Router, told: str, kind: str) -> Unsupported:
    routes = [name for name, lane in router.plan.lanes.items() if lane_serves(lane, kind)]
    hint = f"these routes do: {', '.join(routes)}" if routes else f"none here does (a chat model says `serves: [{kind}]`)"
    return Unsupported(f"{told}; {hint}", "model")
