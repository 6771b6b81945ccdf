"""The policy file: a tuned policy with what it was tuned on and what it should hold."""

from __future__ import annotations

import hashlib
import pathlib
import tempfile
from collections.abc import Mapping
from math import isfinite
from typing import Any, Literal

import msgspec
import yaml
from msgspec import Struct

from rheostat.config.document import resolve

KIND: Literal["rheostat-policy"] = "rheostat-policy"


class ModelPin(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model the policy was tuned with; the config must have it in the same version."""

    name: str
    version: str


class PolicyFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tuned policy. `policy` is in the config's own form; `models` are the versions it was tuned with; `data_hash` names
    the labelled set; `goal` says what was asked for and `expected` what it should hold, metric by metric. `hash` covers
    everything else, so that an edit by hand is noticed."""

    kind: Literal["rheostat-policy"] = KIND
    version: str
    policy: Any
    models: tuple[ModelPin, ...]
    data_hash: str = ""
    goal: Any = None
    expected: Mapping[str, Any] = {}
    hash: str = ""


def content_hash(data: Mapping[str, Any]) -> str:
    """Return the hash of a policy file's content, `hash` itself left out (sha256 of canonical JSON, 16 hex digits)."""
    rest = {key: value for key, value in data.items() if key != "hash"}
    return hashlib.sha256(msgspec.json.encode(rest, order="sorted")).hexdigest()[:16]


def write_policy_file(path: str, file: PolicyFile) -> str:
    """Write `file` whole or not at all, with its hash; return the hash.

    Raises:
        OSError: the folder cannot be written.
    """
    data = {key: value for key, value in msgspec.to_builtins(file).items() if key != "hash"}
    digest = content_hash(data)
    text = yaml.dump({**data, "hash": digest}, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    target = pathlib.Path(path)
    with tempfile.NamedTemporaryFile("wb", dir=target.parent, prefix=".", suffix=".tmp", delete=False) as part:
        part.write(text.encode())
    pathlib.Path(part.name).chmod(0o644)
    pathlib.Path(part.name).replace(target)
    return digest


class _Dumper(yaml.SafeDumper):
    """Quotes every text that would be read back as something else."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if resolve(text) is not text or not text.isprintable() else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _number(dumper: yaml.SafeDumper, value: float) -> yaml.ScalarNode:
    if not isfinite(value):
        return dumper.represent_float(value)
    return dumper.represent_scalar("tag:yaml.org,2002:float", repr(value))


_Dumper.add_representer(str, _text)
_Dumper.add_representer(float, _number)
