"""Everything about one request, versioned, enough to decide it again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from rheostat.types.outcome import Outcome
from rheostat.types.priority import Priority

RECORD_VERSION = 1


class Step(Struct, frozen=True, omit_defaults=True, gc=False):
    """One thing the policy (or the ladder) decided: `at_s` seconds after arrival."""

    at_s: float
    kind: str  # call | answer | decline | fallback
    models: tuple[str, ...]
    reason: str
    propensity: float = 1.0
    weights: Mapping[str, float] = {}


class InputSummary(Struct, frozen=True, omit_defaults=True, gc=False):
    """What is kept of the input: its kind, size and hash; `text` only when the operator asked for raw input."""

    kind: str
    length: int
    hash: str
    text: str | None = None
    changed: bool = False  # characters that cannot be stored were replaced


class History(Struct, frozen=True, omit_defaults=True, gc=False):
    """What was said before in a conversation that is kept here: `turns` were put in front of the request. `left_out` says of
    a model that could not take all of them how many it did not get; with `summary` it got a summary of those."""

    turns: int
    left_out: Mapping[str, int] = {}
    summary: bool = False


class RouteRecord(Struct, frozen=True, omit_defaults=True, tag_field="v", tag=RECORD_VERSION, gc=False):
    """One request from arrival to answer. Times in seconds; `wall` is seconds since 1970 UTC.

    `status` is ok, degraded (a lighter model, the preset, or for the router itself the default model answered), error,
    rejected (the client's fault), or cancelled (the client left). Records are made by position: a new field goes to the end.
    """

    id: str
    wall: float
    route: str
    status: str
    config_version: str = ""
    policy_version: str = ""
    route_type: str = ""
    reason: str = ""
    label: str | None = None
    confidence: float | None = None
    scores: Mapping[str, float] | None = None
    weights: Mapping[str, float] = {}
    propensity: float = 1.0
    selected_model: str = ""
    selected_version: str = ""
    level: int = 0
    fallback_reason: str = ""
    missing: tuple[str, ...] = ()
    stood_in: Mapping[str, Mapping[str, float]] = {}  # by failed model: the scores that counted in its place
    review: str = ""  # why a person should look at the answer
    guess: str | None = None  # the pool's best guess when `review` is set, whatever was said instead
    signals: Mapping[str, float] = {}
    held: Mapping[str, str] = {}
    steps: tuple[Step, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    cancelled: tuple[str, ...] = ()  # who still ran when the request ended; how far they came is in `outcomes`
    cost: float = 0.0
    elapsed_s: float = 0.0
    overhead_s: float = 0.0  # elapsed minus the time spent waiting for models
    deciding_s: float = 0.0
    input: InputSummary | None = None
    meta: Mapping[str, Any] = {}
    session: str | None = None
    tenant: str | None = None
    priority: Priority = "normal"
    forced: bool = False
    cache: str = ""  # hit | shared (with an equal request of the same moment) | semantic-hit | miss | bypass; "" without one
    age_s: float | None = None  # of the cached answer that was given
    completes: bool = False  # an earlier request of this id, asked again after its client was answered
    error: str | None = None
    error_type: str | None = None
    history: History | None = None
    tokens: int = 0  # of all calls, where a budget with limits counts them
    similarity: float | None = None  # of the question whose cached answer was given, where it was another one


class Feedback(Struct, frozen=True, kw_only=True):
    """A later judgement on one request: the right label, a reward in any unit, or both."""

    request_id: str
    wall: float = 0.0
    label: str | None = None
    reward: float | None = None
    source: str = ""
