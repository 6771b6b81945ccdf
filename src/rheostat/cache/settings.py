"""What the config says about answers that are given again."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from rheostat.cache.semantic import SemanticSettings
from rheostat.guarded import RedisSettings
from rheostat.types.duration import Duration

AtLeastOne = Annotated[int, Meta(ge=1)]


class RouteCache(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A route's answer is given again for `ttl` to requests that ask the same: of the same tenant, and with all else that
    changes the answer. Only whole answers by the route's own decision are kept, never errors. With `coalesce`, equal
    requests that come while the first is being answered wait for its answer. With `across_tenants` all tenants share
    the answers: one may then find out what another has asked. With `semantic`, off unless it is given, similar questions
    have the same answer, which is sometimes a wrong one."""

    ttl: Duration = Duration(300.0)
    coalesce: bool = True
    across_tenants: bool = False
    semantic: SemanticSettings | None = None

    def __post_init__(self) -> None:
        if not self.ttl > 0.0:
            raise ValueError("`ttl` must be more than 0; for no cache leave `cache` out")


class CacheSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where answers are kept, for the routes that give them again (`routes.NAME.cache`, or `fallback.cached` when no model
    can be asked): at most `entries` in about `max_bytes` bytes of memory, the least recently used go first, and one
    that takes more than a sixteenth of it is not kept. `fallback.cached` gives none older than `max_age`. `redis` also
    shares them with other gateways, for `ttl` of the route; without it the gateway goes on with its own memory."""

    entries: AtLeastOne = 10_000
    max_bytes: AtLeastOne = 67_108_864
    max_age: Duration = Duration(3600.0)
    redis: RedisSettings | None = None

    def __post_init__(self) -> None:
        if not self.max_age > 0.0:
            raise ValueError("`max_age` must be more than 0")
