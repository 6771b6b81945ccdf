"""What a policy sees."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from rheostat.types.request import Request


class ModelView(Struct, frozen=True):
    """One model as a decision sees it. `latency_s` is a live estimate in seconds, 0 while unknown.

    `ramp`, in (0, 1], is the share of its traffic that a model that has just come back may have. `queued` requests wait for
    one of its `limit` places (0: unlimited). `error_rate`, in [0, 1], is that of the last while. `throughput`, in calls a
    second, is what the model can be expected to finish while it is busy, 0 while unknown. `means` maps a segment ("" for
    all) to running mean scores. `loaded` is False while its weights would have to be loaded first. `quality` is the
    accuracy in its profile, 0 while unknown.
    """

    name: str
    available: bool = True
    cost: float = 0.0
    tier: int = 0
    latency_s: float = 0.0
    in_flight: int = 0
    tags: tuple[str, ...] = ()
    ramp: float = 1.0
    queued: int = 0
    limit: int = 0
    error_rate: float = 0.0
    throughput: float = 0.0
    means: Mapping[str, Mapping[str, float]] = {}
    loaded: bool = True
    quality: float = 0.0


PoolView = Mapping[str, ModelView]
"""The candidates by name: a snapshot that does not change while a request is decided."""


class Context(Struct, frozen=True):
    """Everything a decision may depend on, besides what has come back so far.

    `signals` maps names to numbers; a signal that could not be computed is absent, and so is one made from answers that
    are not all in: `awaited` maps its name to the models it is made from. `held` maps a policy's name to what it
    last decided for this request's key. `memo` keeps what a policy derived from the other fields (it never changes a
    decision, only saves working it out again when the policy is asked a second time).
    """

    request: Request
    signals: Mapping[str, float] = {}
    pool: PoolView = {}
    held: Mapping[str, str] = {}
    memo: dict[str, Any] = field(default_factory=dict)
    awaited: Mapping[str, tuple[str, ...]] = {}
