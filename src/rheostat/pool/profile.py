"""What was measured of a model: how long it takes, how much it takes in, what it weighs, how often it is right."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from os import cpu_count
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from rheostat.errors import ConfigError, Problem, StoreError, WeightsError
from rheostat.weights.file import replacing


class Spread(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long `count` calls took: percentiles in seconds."""

    count: int
    p50_s: float
    p95_s: float
    p99_s: float


class Load(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Calls under one load: `size` rows in a call of a local model, or `size` calls at a time of a remote one. `rows_per_s`
    are the rows finished in a second."""

    size: int
    call: Spread
    rows_per_s: float


class Length(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Single rows of at most `tokens` (estimated), and more than the length before this one."""

    tokens: int
    call: Spread


class Quality(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The share of `rows` answered right, with its 95 % interval. `chosen` says that only requests which were routed to the
    model were judged, so that it does not compare models."""

    accuracy: float
    low: float
    high: float
    rows: int
    chosen: bool = False


class Profile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One version of one model, measured. `source` is `measured` (asked for the purpose) or `records` (live traffic).

    `load_s` is the time to open it in seconds, `memory` what that added to the process in bytes; both None where it
    computes elsewhere or was not opened. `failures` counts the calls that brought no answer, by kind.
    """

    v: Literal[1] = 1
    model: str
    version: str
    made: str
    machine: str
    source: Literal["measured", "records"]
    unit: Literal["rows in a call", "calls at a time"]
    cost: float
    alone: Spread
    loads: tuple[Load, ...] = ()
    lengths: tuple[Length, ...] = ()
    quality: Quality | None = None
    load_s: float | None = None
    memory: int | None = None
    failures: dict[str, int] = {}


def spread_of(times_s: Sequence[float]) -> Spread:
    """Return the percentiles of one or more times in seconds (nearest rank)."""
    ordered = sorted(times_s)
    last = len(ordered) - 1
    p50, p95, p99 = (ordered[round(share * last)] for share in (0.5, 0.95, 0.99))
    return Spread(count=len(ordered), p50_s=p50, p95_s=p95, p99_s=p99)


def load_profile(path: Path, model: str, version: str) -> Profile:
    """Read the profile of that version of the model.

    Raises:
        ConfigError: it cannot be read, or is of another model or version.
    """
    how = f"measure it with `rheostat profile CONFIG DATA --models {model}`, or remove `profile`"
    try:
        profile = msgspec.json.decode(path.read_bytes(), type=Profile)
    except OSError as error:
        raise ConfigError([Problem("profile", None, f"{path.name}: {error.strerror or error}; {how}")]) from error
    except msgspec.DecodeError as error:
        raise ConfigError([Problem("profile", None, f"{path.name} is no profile: {error}; {how}")]) from error
    if (profile.model, profile.version) != (model, version):
        told = f"{path.name} is of {profile.model} version {profile.version}, this is {model} version {version}; {how}"
        raise ConfigError([Problem("profile", None, told)])
    return profile


def save_profile(profile: Profile, path: Path) -> None:
    """Write the profile, whole or not at all.

    Raises:
        StoreError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with replacing(path) as file:
            file.write(msgspec.json.format(msgspec.json.encode(profile), indent=2) + b"\n")
    except WeightsError as error:
        raise StoreError(str(error)) from error


def this_machine() -> str:
    """Say in words where something is measured."""
    return f"{cpu_count()} x {platform.machine()}, {platform.system()} {platform.release()}"
