"""The form of a machine-readable case. A word that is not here makes its case fail."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml
from msgspec import Struct, field

from rheostat.testing.cases.config_words import ConfigWords, Words
from rheostat.testing.cases.slowed import slowed
from rheostat.testing.step import AnyStep

FORMAT = 1


class CaseError(Exception):
    """A case that cannot be read or mapped: an unknown word, or one that makes no sense where it stands."""


class Change(Words, frozen=True, kw_only=True):
    """Something that happens to the config file, `at` seconds from the start."""

    at: float
    write_config: ConfigWords | None = None
    write_config_raw: str | None = None

    def __post_init__(self) -> None:
        if (self.write_config is None) is (self.write_config_raw is None):
            raise ValueError("a step has one of `write_config` and `write_config_raw`")


class Repeat(Words, frozen=True, kw_only=True):
    """A long text: `char` `n` times, then `suffix`."""

    char: str
    n: int
    suffix: str = ""


class RequestWords(Words, frozen=True, kw_only=True):
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


class StatusPage(Words, frozen=True, kw_only=True):
    """What the status page says."""

    last_error_set: bool | None = None
    reloads: int | None = None


class Switches(Words, frozen=True, kw_only=True):
    """How often the answering model changes."""

    req: str | int
    max: int


class LogWords(Words, frozen=True, kw_only=True):
    """What the route log holds."""

    count: int | None = None
    each_parses: bool = False
    has: str | tuple[str, ...] = ()


class Expect(Words, frozen=True, kw_only=True):
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


class Case(Words, frozen=True, kw_only=True):
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


def read_file(path: Path, slow: float = 1.0) -> list[Case | Unread]:
    """Return the cases of a file in their order, their times multiplied by `slow`; those with an unknown word come back
    as Unread.

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
    return [_read(slowed(written, slow), number) for number, written in enumerate(whole["cases"])]


def _read(written: Any, number: int) -> Case | Unread:
    try:
        return msgspec.convert(written, Case)
    except msgspec.ValidationError as error:
        known = written if isinstance(written, dict) else {}
        return Unread(str(known.get("id", f"case {number}")), str(known.get("title", "")), f"unknown word: {error}")
