"""What the config says about conversations that are kept."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from rheostat.guarded import RedisSettings
from rheostat.types.duration import Duration

AtLeastOne = Annotated[int, Meta(ge=1)]
Fit = Literal["window", "summary", "none"]


class RouteSession(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The route's conversations are kept: a request with a session (`x-rheostat-session`) brings only what is new, and what
    was said before is put in front of it.

    `fit` says what a model gets whose `max_input` is smaller than the conversation: the instructions and the latest turns
    that it holds (`window`), these after a summary of what came before them that the model `summary_by` writes in about
    `summary_tokens` tokens (`summary`; without an answer of that model it is a window), or nothing: it is passed over
    (`none`)."""

    fit: Fit = "window"
    summary_by: str | None = None
    summary_tokens: Annotated[int, Meta(ge=16)] = 300

    def __post_init__(self) -> None:
        if (self.fit == "summary") != (self.summary_by is not None):
            raise ValueError("`fit: summary` and `summary_by`, the model that writes it, go together")


class SessionRedis(RedisSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Redis server through which gateways share conversations. All keys begin with `prefix`. A request waits for it no
    longer than `timeout`; a server that keeps failing is left alone for 5 seconds at a time, and meanwhile a request that
    needs it gets 503. Give it memory without eviction: what it drops is forgotten."""

    timeout: Duration = Duration(0.5)


class SessionSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where conversations are kept, for the routes that ask for it (`routes.NAME.session`): in this process (`memory`), in
    the file `path` that all processes of a machine may share (`sqlite`), or in a `redis` that machines share.

    A conversation is forgotten `max_age` after its last turn. Of one that has more than `max_turns` turns or `max_bytes`
    bytes the oldest go; a turn that is larger by itself is refused. In memory and in the file all together take about
    `max_total` bytes, and those not used for longest go first."""

    store: Literal["memory", "sqlite", "redis"] = "memory"
    path: str | None = None
    redis: SessionRedis | None = None
    max_age: Duration = Duration(86_400.0)
    max_turns: Annotated[int, Meta(ge=1, le=5_000)] = 500
    max_bytes: AtLeastOne = 1_048_576
    max_total: AtLeastOne = 268_435_456

    def __post_init__(self) -> None:
        if (self.store == "sqlite") != (self.path is not None):
            raise ValueError("`store: sqlite` and `path`, the name of its file, go together")
        if (self.store == "redis") != (self.redis is not None):
            raise ValueError("`store: redis` and `redis`, with its `url`, go together")
        if not self.max_age > 0.0:
            raise ValueError("`max_age` must be more than 0")
        if self.max_bytes > self.max_total:
            raise ValueError("`max_bytes`, of one conversation, is more than `max_total`, of all")
