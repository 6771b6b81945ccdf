"""The words by which a case speaks of a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct


class Words(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Words of the form; others are refused."""


class Batch(Words, frozen=True, kw_only=True):
    """Put several requests into one call."""

    max: int
    wait_ms: float


class ModelWords(Words, frozen=True, kw_only=True):
    """What a case says of one model."""

    weight: float | None = None
    max_input: int | None = None
    concurrency: int | None = None
    queue: int | None = None
    pool: int | None = None
    timeout_s: float | None = None
    tags: tuple[str, ...] = ()
    side_effects: bool = False
    fallback: tuple[str, ...] = ()
    key: str | None = None
    type: Literal["kserve_v2"] | None = None
    labels: tuple[str, ...] = ()
    output: str | None = None
    input: str | None = None
    n: int | None = None
    batch: Batch | None = None


class Difficulty(Words, frozen=True, kw_only=True):
    """Weak or strong, by a score with a band around its border, or by a model."""

    border: float | None = None
    band: float = 0.0
    key: str | None = None
    model: str | None = None
    on_error: str | None = None


class RuleWords(Words, frozen=True, kw_only=True):
    """One rule."""

    use: str
    if_contains: str | tuple[str, ...] | None = None
    if_regex: str | None = None
    if_header: Mapping[str, str] | None = None


class Shadow(Words, frozen=True, kw_only=True):
    """A model that gets copies."""

    model: str
    share: float
    max_in_flight: int | None = None


class RouteWords(Words, frozen=True, kw_only=True):
    """How one route decides; exactly one of the ways is named."""

    primary: str | None = None
    fallback: tuple[str, ...] = ()
    pool: tuple[str, ...] = ()
    choose: str | None = None
    cascade: tuple[str, ...] = ()
    threshold: float | None = None
    by_label: str | None = None
    map: Mapping[str, str] = {}
    default: str | None = None
    blend: tuple[str, ...] = ()
    difficulty: Difficulty | None = None
    key: str | None = None
    rules: tuple[RuleWords, ...] = ()
    normalise: bool | None = None
    sticky: str | None = None
    by_tag: str | None = None
    shadow: Shadow | None = None


class BreakerWords(Words, frozen=True, kw_only=True):
    """When a model is left alone."""

    failures: int
    open_s: float = 30.0
    half_open_max: int | None = None
    half_open_successes: int | None = None


class Timeouts(Words, frozen=True, kw_only=True):
    """Seconds."""

    attempt_s: float | None = None
    request_s: float | None = None
    first_token_s: float | None = None
    gap_s: float | None = None
    total_s: float | None = None


class Cache(Words, frozen=True, kw_only=True):
    """Keep answers."""

    ttl_s: float
    coalesce: bool = False


class Limits(Words, frozen=True, kw_only=True):
    """Sizes that hold for every request."""

    body_bytes: int | None = None
    in_flight: int | None = None
    rows: int | None = None
    sessions: int | None = None


class Key(Words, frozen=True, kw_only=True):
    """A client's key."""

    tenant: str | None = None
    models: tuple[str, ...] = ()
    may_force: bool = False


class ConfigWords(Words, frozen=True, kw_only=True):
    """The configuration of a case. `rheostat` is laid over the mapped config, for what the form has no word for."""

    models: Mapping[str, ModelWords] = {}
    route: RouteWords | None = None
    routes: Mapping[str, RouteWords] = {}
    retries: int | None = None
    breaker: BreakerWords | bool | None = None
    timeouts: Timeouts = Timeouts()
    cache: Cache | None = None
    default_fallback: tuple[str, ...] = ()
    max_fallbacks: int | None = None
    workers: int = 1
    limits: Limits = Limits()
    keys: Mapping[str, str | Key] = {}
    access: Mapping[str, tuple[str, ...]] = {}
    admin_secret: str | None = None
    rheostat: Mapping[str, Any] = {}

    def __post_init__(self) -> None:
        if self.breaker is True:
            raise ValueError("`breaker` is false, or a mapping")
