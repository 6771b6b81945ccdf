"""What a configuration may say. Every field here has an effect; what is not here is refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from rheostat.cache.settings import CacheSettings, RouteCache
from rheostat.pool import ModelSettings
from rheostat.resilience.health import EjectionSettings
from rheostat.resilience.ladder import FallbackSettings
from rheostat.resilience.residency import MemorySettings
from rheostat.resilience.spend import SpendSettings
from rheostat.results.settings import ResultSettings
from rheostat.sessions.settings import RouteSession, SessionSettings
from rheostat.signals.base import ScorerSettings
from rheostat.types.duration import Duration
from rheostat.types.priority import Priority
from rheostat.versions.settings import VersionSettings
from rheostat.watch.settings import WatchSettings

Port = Annotated[int, Meta(ge=0, le=65535)]
Count = Annotated[int, Meta(ge=0)]
AtLeastOne = Annotated[int, Meta(ge=1)]


def _more_than_zero(name: str, value: float) -> None:
    if not value > 0.0:
        raise ValueError(f"`{name}` must be more than 0, got {value:g}")


class RouteSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way in. `policy` decides (a model's name, a policy, or `{file: tuned.yaml}`); `deadline` bounds a request whose
    client asks for no shorter time (0: only the client's); `fallback` is the ladder; `models` limits the candidates,
    those of L3 too (default: all). `max_cost` is what one request may spend on calls: a model that would go beyond it is
    not asked, and the policy hears `over_budget`; a model that fails is not tried again (L1). A client may ask for less.
    With `cache` its answers are given again while they are fresh. With `session` its conversations are kept."""

    policy: Any
    deadline: Duration = Duration(10.0)
    fallback: FallbackSettings = FallbackSettings()
    models: tuple[str, ...] = ()
    max_cost: float | None = None
    cache: RouteCache | None = None
    session: RouteSession | None = None

    def __post_init__(self) -> None:
        if self.max_cost is not None:
            _more_than_zero("max_cost", self.max_cost)

    @property
    def limit(self) -> float:
        """What one request may cost; infinity without `max_cost`."""
        return float("inf") if self.max_cost is None else self.max_cost


class RecordSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where route records go: a file of JSON lines, an SQLite file, both or none. `input: raw` also keeps the input
    itself (default `summary`: kind, length and hash). SQLite keeps the last `keep_rows` records (0: all)."""

    jsonl: str | None = None
    sqlite: str | None = None
    input: Literal["summary", "raw"] = "summary"
    keep_rows: Count = 1_000_000


class KeySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One client's key. `may_force` allows `route.force_model` and `route.skip_route`; `routes` limits where it may go
    (default: everywhere). `priority` (high, normal or low) says who goes first where not all can be served; a client may ask
    for less by the header `x-rheostat-priority`. `max_in_flight` requests of its tenant may be served at a time (0:
    unlimited), the next gets 429; keys of one tenant say the same."""

    key: str
    tenant: str | None = None
    may_force: bool = False
    routes: tuple[str, ...] = ()
    priority: Priority = "normal"
    max_in_flight: Count = 0

    def __repr__(self) -> str:
        return f"KeySettings(key=***, tenant={self.tenant!r}, may_force={self.may_force}, routes={self.routes})"


class AdminSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The admin port. It does not open without a `secret` of at least 16 characters. `port: 0` takes any free port."""

    secret: str | None = None
    host: str = "127.0.0.1"
    port: Port = 9090

    def __repr__(self) -> str:
        secret = None if self.secret is None else "***"
        return f"AdminSettings(secret={secret}, host={self.host!r}, port={self.port})"


class ServerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The gateway. `port: 0` takes any free port. With `grpc_port` the Open Inference Protocol is served over gRPC too, on
    the same host (`pip install 'rheostat[grpc]'`); there a larger `max_body` needs a restart. `max_body` is in bytes;
    `max_in_flight` requests at a time (0: unlimited), the next gets 503: one of low priority at 80 % of that, one of high
    priority at a tenth more; `max_batch` rows in one list; slow clients are cut off after `header_timeout` and
    `body_timeout`; a stopping gateway gives requests in flight `drain` to finish (0: it does not wait)."""

    host: str = "127.0.0.1"
    port: Port = 8080
    grpc_port: Port | None = None
    max_body: AtLeastOne = 1_048_576
    max_batch: AtLeastOne = 1_000
    max_in_flight: Count = 0
    header_timeout: Duration = Duration(10.0)
    body_timeout: Duration = Duration(30.0)
    drain: Duration = Duration(10.0)

    def __post_init__(self) -> None:
        _more_than_zero("header_timeout", self.header_timeout)
        _more_than_zero("body_timeout", self.body_timeout)


class HoldSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What hysteresis may remember: `limit` keys, each for `idle` after its last use. To remember nothing, leave
    `hysteresis` out of the policies."""

    limit: AtLeastOne = 10_000
    idle: Duration = Duration(600.0)

    def __post_init__(self) -> None:
        _more_than_zero("idle", self.idle)


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file, whole. `task` is what a row is: something to `classify`, or a conversation (`chat`) that language models
    (`backend: chat`) go on with, over `/v1/chat/completions`. `labels` is the label set of the task, if all models must
    share one."""

    models: dict[str, ModelSettings]
    routes: dict[str, RouteSettings]
    task: Literal["classify", "chat"] = "classify"
    labels: tuple[str, ...] = ()
    signals: dict[str, ScorerSettings] = {}
    budgets: dict[str, SpendSettings] = {}
    records: RecordSettings = RecordSettings()
    cache: CacheSettings = CacheSettings()
    sessions: SessionSettings = SessionSettings()
    results: ResultSettings = ResultSettings()
    server: ServerSettings = ServerSettings()
    admin: AdminSettings = AdminSettings()
    keys: tuple[KeySettings, ...] = ()
    holds: HoldSettings = HoldSettings()
    health: EjectionSettings = EjectionSettings()
    memory: MemorySettings = MemorySettings()
    watch: WatchSettings | None = None
    versions: VersionSettings | None = None
