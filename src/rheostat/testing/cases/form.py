"""The form of a machine-readable case. A word that is not here makes its case fail."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml
from msgspec import Struct, field

from rheostat.testing.step import AnyStep

FORMAT = 1


class CaseError(Exception):
    """A case that cannot be read or mapped: an unknown word, or one that makes no sense where it stands."""


class _Words(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Words of the form; others are refused."""


class Batch(_Words, frozen=True, kw_only=True):
    """Put several requests into one call."""

    max: int
    wait_ms: float


class ModelWords(_Words, frozen=True, kw_only=True):
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
    type: Literal["kserve_v2", "openai", "plain"] = "plain"
    labels: tuple[str, ...] = ()
    output: str | None = None
    input: str | None = None
    n: int | None = None
    batch: Batch | None = None


class Difficulty(_Words, frozen=True, kw_only=True):
    """Weak or strong, by a score with a band around its border, or by a model."""

    border: float | None = None
    band: float = 0.0
    key: str | None = None
    model: str | None = None
    on_error: str | None = None


class RuleWords(_Words, frozen=True, kw_only=True):
    """One rule."""

    use: str
    if_contains: str | tuple[str, ...] | None = None
    if_regex: str | None = None
    if_header: Mapping[str, str] | None = None


class Shadow(_Words, frozen=True, kw_only=True):
    """A model that gets copies."""

    model: str
    share: float
    max_in_flight: int | None = None


class RouteWords(_Words, frozen=True, kw_only=True):
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


class BreakerWords(_Words, frozen=True, kw_only=True):
    """When a model is left alone."""

    failures: int
    open_s: float = 30.0
    half_open_max: int | None = None
    half_open_successes: int | None = None


class Timeouts(_Words, frozen=True, kw_only=True):
    """Seconds."""

    attempt_s: float | None = None
    request_s: float | None = None
    first_token_s: float | None = None
    gap_s: float | None = None
    total_s: float | None = None


class Cache(_Words, frozen=True, kw_only=True):
    """Keep answers."""

    ttl_s: float
    coalesce: bool = False


class Limits(_Words, frozen=True, kw_only=True):
    """Sizes that hold for every request."""

    body_bytes: int | None = None
    in_flight: int | None = None
    rows: int | None = None
    sessions: int | None = None


class Key(_Words, frozen=True, kw_only=True):
    """A client's key."""

    tenant: str | None = None
    models: tuple[str, ...] = ()
    may_force: bool = False


class ConfigWords(_Words, frozen=True, kw_only=True):
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


class Change(_Words, frozen=True, kw_only=True):
    """Something that happens to the config file, `at` seconds from the start."""

    at: float
    write_config: ConfigWords | None = None
    write_config_raw: str | None = None

    def __post_init__(self) -> None:
        if (self.write_config is None) is (self.write_config_raw is None):
            raise ValueError("a step has one of `write_config` and `write_config_raw`")


class Repeat(_Words, frozen=True, kw_only=True):
    """A long text: `char` `n` times, then `suffix`."""

    char: str
    n: int
    suffix: str = ""


class RequestWords(_Words, frozen=True, kw_only=True):
    """One request, or `count` of them."""

    at: float = 0.0
    count: int = 1
    every: float | None = None
    parallel: bool = False
    route: str | None = None
    path: str | None = None
    method: str | None = None
    key: str | None = None
    headers: Mapping[str, str] = {}
    stream: bool = False
    cancel_after: float | None = None
    text: str | None = None
    text_unique: bool = False
    text_repeat: Repeat | None = None
    tokens: int | None = None
    raw_body: str | None = None
    raw_json: str | None = None
    extra_body: Mapping[str, Any] = {}
    body_size: int | None = None
    chunked: bool = False
    exact: bool = False
    nest_depth: int | None = None
    vector_len: int | None = None
    fill: float | None = None
    unique_id: bool = False
    model_random: bool = False
    score_cycle: tuple[float, ...] = ()
    bind: str | None = None


class StatusPage(_Words, frozen=True, kw_only=True):
    """What the status page says."""

    last_error_set: bool | None = None
    reloads: int | None = None


class Switches(_Words, frozen=True, kw_only=True):
    """How often the answering model changes."""

    req: str | int
    max: int


class LogWords(_Words, frozen=True, kw_only=True):
    """What the route log holds."""

    count: int | None = None
    each_parses: bool = False
    has: str | tuple[str, ...] = ()


class Expect(_Words, frozen=True, kw_only=True):
    """One check. Which words go together is said in `check`."""

    req: int | str | None = None
    status: int | None = None
    status_in: tuple[int, ...] | None = None
    status_not: tuple[int, ...] | None = None
    elapsed_max: float | None = None
    elapsed_min: float | None = None
    elapsed_p: float | None = None
    max: float | None = None
    body_has: str | None = None
    body_lacks: str | None = None
    json: str | None = None
    is_: Any = field(default=msgspec.UNSET, name="is")
    approx: float | None = None
    tol: float | None = None
    valid_json: Literal["strict"] | None = None
    header: str | None = None
    has: str | None = None
    int_between: tuple[int, int] | None = None
    model: str | None = None
    stream_text: str | None = None
    stream_chunks: int | None = None
    stream_ends_with: Literal["error_event", "end"] | None = None
    echoes_own_id: bool | None = None
    upstream: str | None = None
    calls: int | None = None
    calls_min: int | None = None
    calls_max: int | None = None
    concurrency_max: int | None = None
    calls_between: tuple[float, float] | None = None
    call: int | None = None
    aborted_within: float | None = None
    received_text: str | None = None
    breaker: str | None = None
    state: str | None = None
    status_count: Mapping[int, int] | None = None
    switches: Switches | None = None
    metric: str | None = None
    labels: Mapping[str, str] | None = None
    increase: float | None = None
    increase_min: float | None = None
    sum_over_labels: bool | None = None
    scrapes: int | None = None
    monotone: bool | None = None
    series_growth_max: int | None = None
    log: LogWords | None = None
    status_page: StatusPage | None = None
    all_output_lacks: tuple[str, ...] | None = None
    one_of: tuple[Expect, ...] | None = None
    config_refused: bool | None = None

    def words(self) -> frozenset[str]:
        """Return the words that this check uses."""
        return frozenset(
            name.rstrip("_")
            for name in self.__struct_fields__
            if (value := getattr(self, name)) is not None and value is not msgspec.UNSET
        )


class Case(_Words, frozen=True, kw_only=True):
    """One case."""

    id: str
    kind: str
    title: str
    severity: str = "outage"
    source: tuple[str, ...] = ()
    config: ConfigWords
    upstream: Mapping[str, tuple[AnyStep, ...]] = {}
    steps: tuple[Change, ...] = ()
    requests: tuple[RequestWords, ...] = ()
    expect: tuple[Expect, ...]

    @property
    def lasts_s(self) -> float:
        """Seconds until the last request is sent, if none before it has to be waited for."""
        times = [0.0, *(change.at for change in self.steps)]
        times += [asked.at + (asked.count - 1) * (asked.every or 0.0) for asked in self.requests]
        times += [asked.at + 0.3 for asked in self.requests if asked.stream]
        return max(times)


class Unread(Struct, frozen=True):
    """A case that could not be read, and why: it fails."""

    id: str
    title: str
    problem: str


def read_file(path: Path) -> list[Case | Unread]:
    """Return the cases of a file in their order; those with an unknown word come back as Unread.

    Raises:
        CaseError: it is no file of cases.
    """
    try:
        whole = yaml.load(path.read_bytes(), Loader=yaml.CSafeLoader if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader)
    except (OSError, yaml.YAMLError) as error:
        raise CaseError(f"{path}: {error}") from None
    if not isinstance(whole, dict) or set(whole) != {"format", "cases"} or not isinstance(whole["cases"], list):
        raise CaseError(f"{path}: expected `format: {FORMAT}` and a list `cases`, and nothing else")
    if whole["format"] != FORMAT:
        raise CaseError(f"{path}: format {whole['format']!r} is not known; this runner reads format {FORMAT}")
    return [_read(written, number) for number, written in enumerate(whole["cases"])]


def _read(written: Any, number: int) -> Case | Unread:
    try:
        return msgspec.convert(written, Case)
    except msgspec.ValidationError as error:
        known = written if isinstance(written, dict) else {}
        return Unread(str(known.get("id", f"case {number}")), str(known.get("title", "")), f"unknown word: {error}")
