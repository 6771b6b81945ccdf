"""The policy file: a tuned policy with what it was tuned on and what it should hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
import xxhash
from msgspec import Struct

KIND = "rheostat-policy"
FORMAT = 1
"""The form that is written and read today."""


class ModelPin(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model the policy was tuned with; the config must have it in the same version."""

    name: str
    version: str


class PolicyFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tuned policy. `policy` is in the config's own form; `models` are the versions it was tuned with; `data_hash` names
    the labelled set; `goal` says what was asked for, `expected` what it should hold, `chosen_on` what it held where it was
    chosen. `version` is a hash of everything else, so that an edit by hand is noticed."""

    kind: Literal["rheostat-policy"]
    version: str
    policy: Any
    models: tuple[ModelPin, ...]
    format: Literal[1] = 1
    data_hash: str = ""
    goal: Any = None
    expected: Mapping[str, Any] = {}
    chosen_on: Mapping[str, Any] = {}
    notes: tuple[str, ...] = ()


def version_of(content: Mapping[str, Any]) -> str:
    """Return the hash that names a policy file's content (a key `version` in it does not count)."""
    rest = {key: value for key, value in content.items() if key != "version"}
    return xxhash.xxh3_64_hexdigest(msgspec.json.encode(rest, order="sorted"))
