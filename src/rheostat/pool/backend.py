"""The adapter that speaks to a model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any, ClassVar, Protocol, runtime_checkable

from msgspec import Meta, Struct

from rheostat.errors import ModelError
from rheostat.pool.preparing import PrepareSettings
from rheostat.pool.worker.settings import Count, WorkerSettings, processes_of
from rheostat.resilience.batch import BatchSettings
from rheostat.resilience.breaker import BreakerSettings
from rheostat.resilience.health import HealthSettings
from rheostat.resilience.limit import LimitSettings
from rheostat.resilience.ramp import RampSettings
from rheostat.resilience.retry import RetryBudgetSettings
from rheostat.resilience.stream import StreamLimits
from rheostat.types import Prediction
from rheostat.types.ability import Ability
from rheostat.types.chat import Kind
from rheostat.types.duration import Duration

Row = Any
"""One input: text, or a mapping of features."""
Reply = Prediction | ModelError
"""One row's answer: a prediction, or why this row (and not its neighbours) has none."""


@runtime_checkable
class Backend(Protocol):
    """Speaks to one model in this process: rows in, replies out, same length and order.

    It may take long: the engine calls it on the event loop only when it is measured to be quick, in a thread otherwise.
    It is called from several threads at once unless the model's `max_concurrency` is 1.
    """

    labels: tuple[str, ...] | None  # the label set, where the model declares one

    def predict(self, rows: Sequence[Row]) -> Sequence[Reply]:
        """Answer every row.

        Raises:
            ModelError: the whole call failed.
        """

    def close(self) -> None:
        """Give back what was opened; called once."""


@runtime_checkable
class RemoteBackend(Protocol):
    """Speaks to one model elsewhere, without blocking the event loop. One of this process that can be awaited and stopped
    is a `Backend` as well: it is opened, checked and measured as one of this process, and then asked like one elsewhere."""

    labels: tuple[str, ...] | None

    async def apredict(self, rows: Sequence[Row], timeout_s: float) -> Sequence[Reply]:
        """Answer every row within `timeout_s` seconds (the engine also enforces it).

        Raises:
            ModelError: the whole call failed.
        """

    async def aclose(self) -> None:
        """Give back what was opened; called once."""


class Piece(Struct, frozen=True, omit_defaults=True):
    """A part of an answer's text. `finish` stands in the last one only and says that the answer is complete; `reply` is then
    how the backend reads the whole (None: the text is the label). `chunk` is what the part came in, as server-sent events
    that may be sent on as they are; a part without text may have one, too. After a part that is `complete` there is no more
    text: what the backend still waits for, a while, only tells about it, and no limit of the answer holds any more."""

    text: str = ""
    finish: str | None = None
    reply: Reply | None = None
    chunk: bytes = b""
    complete: bool = False


@runtime_checkable
class StreamingBackend(Protocol):
    """A remote backend whose answer can come piece by piece; optional."""

    def astream(self, row: Row, timeout_s: float) -> AsyncIterator[Piece]:
        """Yield the answer to one row; the last piece has a `finish`. Closing the iterator stops the model's work.

        `timeout_s` is for the model to know; the engine enforces the limits of `ModelSettings.stream`.

        Raises:
            ModelError: it failed; `reset` when it ended without an end.
        """


@runtime_checkable
class Switchable(Protocol):
    """A backend that can make the model of other weights out of itself; optional."""

    def successor(self, settings: ModelSettings, base: str) -> Backend | None:
        """Return the model that `settings` describe, made with parts of this one; this one stays as it is, and either may be
        closed first. None when they share too little, so that it has to be opened anew.

        Raises:
            ConfigError: the new weights cannot be used.
        """

    def rehearsal(self) -> Backend:
        """Return this model as it may be tried before it takes traffic: what a successor shares with a model in service need
        not be computed once more for a row that it answered there. Itself, where nothing is saved by it."""


@runtime_checkable
class Describable(Protocol):
    """A remote backend whose server says what it serves; optional."""

    async def adescribe(self, timeout_s: float) -> None:
        """Hold what the server says to what the config says, within `timeout_s` seconds.

        Raises:
            ContractError: it differs.
            ModelError: the server does not answer.
        """


@runtime_checkable
class Checkable(Protocol):
    """A backend that knows how to be asked whether it is well; optional."""

    async def acheck(self, timeout_s: float) -> None:
        """Return when the model is well, within `timeout_s` seconds.

        Raises:
            ModelError: it is not, or did not say so in time.
        """


class ModelSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="backend"):
    """What every model in the config may say, whatever its backend. Each backend adds its own fields.

    `version` is what records and policy files call these weights; change it whenever the model changes. `cost` is what one
    call is charged in curves and budgets, in any unit that is the same for all models. `tier` (0: cheapest), `tags` and
    `weak_at` are for people and policies. `labels` declares the label set where the model does not bring its own; an
    answer outside it is a failure. `profile` names the file that `rheostat profile` made of this version: its latency and
    quality are known to decisions from the start. `calibration` names a calibrator's file. `probe` is one row, or a list
    of rows, for the contract check at load and for health checks. `max_input` is the largest input it can take, in tokens
    as `tokens_of` estimates them (0: any); a larger one passes it over. `can` lists what it can take of what a conversation
    may need (default: all of it); one that needs something else passes it over. With `side_effects` a call whose result is
    unknown is never repeated, not by another model either. `retry_budget` bounds its retries (L1) over all requests.

    `timeout` bounds one attempt, and the wait for a place before it (0: the route's deadline). `max_concurrency` bounds
    calls at a time (0: the number of processors for a local model in threads, else the breaker's `maxConcurrent`), and
    `queue` requests may wait for a place (0: none, but for a local model in threads without `max_concurrency` what is left
    of `maxConcurrent`); the next is refused at once. With `adaptive` the number of calls at a time finds itself, for a model
    that is not in this process. `peers` answer in its place with equal quality, `lighter` with less.
    `breaker` replaces the breaker's defaults; `ramp` is how it comes back afterwards, `health` how it is checked without
    traffic. `run` says where a local model computes: on the event loop (`inline`), in threads of its own (`thread`), in
    processes of its own (`process`; `workers` says how many, and within which limits), or as measured when it is loaded
    (`auto`: a process only for a model that takes 10 ms or more and lets no other thread run meanwhile). With `stream`, its
    limits, it answers piece by piece where a client asks for that (`http` and `openai` from chat completions, `gguf`
    without labels; `chat` in any case).

    A model with `resident: false` is in memory only while it is wanted: it is loaded when it is first asked and unloaded,
    no sooner than `keep` after that, when `memory` is full and it was used longest ago. At start it is opened once to be
    checked and measured; with `preload` it stays. With `batch` the rows of several requests go through it in one call.
    With `prepare` images or texts are turned into what it takes beforehand.
    """

    version: str = "1"
    cost: float = 1.0
    tier: int = 0
    tags: tuple[str, ...] = ()
    weak_at: str = ""
    timeout: Duration = Duration(0.0)
    max_concurrency: int = 0
    queue: int = 0
    adaptive: LimitSettings | None = None
    peers: tuple[str, ...] = ()
    lighter: str | None = None
    labels: tuple[str, ...] = ()
    calibration: str | None = None
    profile: str | None = None
    probe: Any = None
    max_input: Annotated[int, Meta(ge=0)] = 0
    can: tuple[Ability, ...] | None = None
    side_effects: bool = False
    run: str = "auto"
    breaker: BreakerSettings | None = None
    retry_budget: RetryBudgetSettings = RetryBudgetSettings()
    ramp: RampSettings = RampSettings()
    health: HealthSettings = HealthSettings()
    stream: StreamLimits | None = None
    resident: bool = True
    keep: Duration = Duration(60.0)
    preload: bool = False
    batch: BatchSettings | None = None
    workers: Count | WorkerSettings | None = None
    prepare: PrepareSettings | None = None

    extra: ClassVar[str] = ""  # the optional install this backend needs
    takes_arrays: ClassVar[bool] = False  # whether a row may be an array of numbers

    @property
    def check_url(self) -> str:
        """What a model of this kind offers for health checks; empty when nothing."""
        return ""

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """What a model of this kind can answer where language models are asked."""
        return ("chat",)

    @property
    def rows_together(self) -> bool:
        """Whether one call to a model of this kind carries several rows, so that there is something to gain from `batch`."""
        return True

    def charge(self, said: Prediction | None, tries: int) -> float:  # noqa: ARG002
        """Return what `tries` calls cost of which the last was answered so: `cost` each, where nothing better is known."""
        return self.cost * tries

    @property
    def processes(self) -> WorkerSettings | None:
        """The processes that the config asks for; None when it asks for none."""
        return processes_of(self.run, self.workers)

    @property
    def probe_rows(self) -> list[Row]:
        """The rows of `probe`."""
        if self.probe is None:
            return []
        return list(self.probe) if isinstance(self.probe, list | tuple) else [self.probe]

    def open(self, base: str) -> Backend | RemoteBackend:
        """Load the model. `base` is the folder that relative paths in the config start from.

        Raises:
            ConfigError, ContractError, MissingExtra: it cannot be loaded; the message says what to do.
        """
        raise NotImplementedError(type(self).__name__)
