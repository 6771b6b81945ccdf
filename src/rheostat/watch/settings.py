"""What the config says about watching."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from rheostat.types.duration import Duration

Share = Annotated[float, Meta(gt=0.0, le=1.0)]
Requests = Annotated[int, Meta(ge=20)]


class WatchSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is watched in the traffic, and when it rings.

    What happened in the last `window` is compared with what is usual: the traffic before it, `usual` long. Nothing is
    judged on fewer than `least` requests. `share` is by how much a model's share of a route's calls may move (0.1: ten
    points), `slow` how many of the calls may be slower than all but one in twenty usually are, `cost` how many times its
    usual cost a request may cost. Three limits hold whatever is usual: `overhead` for the router's own time of one request
    in a hundred, `overflow` for the share of requests that got no place at a model, `errors` for the share that got no
    answer. `accuracy` is the least share of answers that later judgements may call right; without it only a fall is told.
    """

    window: Duration = Duration(300.0)
    usual: Duration = Duration(86_400.0)
    least: Requests = 100
    share: Share = 0.1
    slow: Share = 0.25
    cost: Annotated[float, Meta(gt=1.0)] = 1.5
    overhead: Duration = Duration(0.05)
    overflow: Share = 0.15
    errors: Share = 0.05
    accuracy: Share | None = None

    def __post_init__(self) -> None:
        if not 10.0 <= self.window <= 86_400.0:
            raise ValueError(f"`window` must be 10s to 24h, got {float(self.window):g}s")
        if self.usual < self.window:
            raise ValueError(f"`usual` must be at least as long as `window` ({float(self.window):g}s)")
