"""What a configuration may say. Every field here has an effect; what is not here is refused."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from rheostat.pool import ModelSettings
from rheostat.resilience.ladder import FallbackSettings
from rheostat.signals.base import ScorerSettings
from rheostat.types.duration import Duration


class RouteSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way in. `policy` decides (a model's name, a policy, or `{file: tuned.yaml}`); `deadline` bounds a request whose
    client asks for no shorter time; `fallback` is the ladder; `models` limits the candidates (default: all)."""

    policy: Any
    deadline: Duration = Duration(10.0)
    fallback: FallbackSettings = FallbackSettings()
    models: tuple[str, ...] = ()


class RecordSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where route records go: a file of JSON lines, an SQLite file, both or none. `input: raw` also keeps the input
    itself (default `summary`: kind, length and hash). SQLite keeps the last `keep_rows` records (0: all)."""

    jsonl: str | None = None
    sqlite: str | None = None
    input: str = "summary"
    keep_rows: int = 1_000_000


class KeySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One client's key. `may_force` allows `route.force_model` and `route.skip_route`; `routes` limits where it may go
    (default: everywhere)."""

    key: str
    tenant: str | None = None
    may_force: bool = False
    routes: tuple[str, ...] = ()


class AdminSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The admin port. It does not open without a `secret` of at least 16 characters."""

    secret: str | None = None
    host: str = "127.0.0.1"
    port: int = 9090


class ServerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The gateway. `max_body` is in bytes; `max_in_flight` requests at a time (0: unlimited), the next gets 503;
    `max_batch` rows in one list; slow clients are cut off after `header_timeout` and `body_timeout`; a stopping gateway
    gives requests in flight `drain` to finish."""

    host: str = "127.0.0.1"
    port: int = 8080
    max_body: int = 1_048_576
    max_batch: int = 1_000
    max_in_flight: int = 0
    header_timeout: Duration = Duration(10.0)
    body_timeout: Duration = Duration(30.0)
    drain: Duration = Duration(10.0)


class HoldSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What hysteresis may remember: `limit` keys, each for `idle` after its last use."""

    limit: int = 10_000
    idle: Duration = Duration(600.0)


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file, whole. `labels` is the label set of the task, if all models must share one."""

    models: dict[str, ModelSettings]
    routes: dict[str, RouteSettings]
    task: str = "classify"
    labels: tuple[str, ...] = ()
    signals: dict[str, ScorerSettings] = {}
    records: RecordSettings = RecordSettings()
    server: ServerSettings = ServerSettings()
    admin: AdminSettings = AdminSettings()
    keys: tuple[KeySettings, ...] = ()
    holds: HoldSettings = HoldSettings()
