"""What a mapped config asks for that this version of Rheostat does not have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from rheostat.backends import BACKENDS
from rheostat.config.schema import Config, KeySettings, RouteSettings, ServerSettings
from rheostat.policies import KINDS
from rheostat.resilience.breaker import BreakerSettings
from rheostat.resilience.ladder import FallbackSettings
from rheostat.testing.cases.mapping_policies import kinds_in


def lacking(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the capabilities, by the config's words, that Rheostat lacks for `config`; empty when it can be run.

    It is read from the code, so that a capability that has come is tried at once.
    """
    return tuple(dict.fromkeys(_lacking(config)))


def takes_streams(contract: Mapping[str, Any]) -> bool:
    """Say whether a gateway whose contract (`/openapi.json`) this is lets a client ask for a stream."""
    bodies = (schema.get("properties", {}) for schema in contract.get("components", {}).get("schemas", {}).values())
    return any("stream" in body for body in bodies)


def _lacking(config: Mapping[str, Any]) -> Iterator[str]:
    yield from _unknown(config, Config, "")
    for model in config["models"].values():
        kind = BACKENDS.get(model["backend"])
        if kind is None:
            yield f"backend: {model['backend']}"
            continue
        yield from _unknown(model, kind, "models.", beside=("backend",))
        yield from _unknown(model.get("breaker", {}), BreakerSettings, "breaker.")
    for route in config["routes"].values():
        yield from _unknown(route, RouteSettings, "routes.")
        yield from _unknown(route["fallback"], FallbackSettings, "fallback.")
        yield from (f"policy: {kind}" for kind in kinds_in(route["policy"]) if kind not in KINDS)
    yield from _unknown(config["server"], ServerSettings, "server.")
    for key in config.get("keys", ()):
        yield from _unknown(key, KeySettings, "keys.")


def _unknown(written: Mapping[str, Any], kind: type, at: str, beside: Iterable[str] = ()) -> Iterator[str]:
    known = {field.encode_name for field in msgspec.structs.fields(kind)} | set(beside)
    yield from (f"{at}{name}" for name in written if name not in known)
