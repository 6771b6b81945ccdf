"""One model's result after its attempts."""

from __future__ import annotations

from msgspec import Struct

from rheostat.errors import FAILURES
from rheostat.types.prediction import Prediction


class Failure(Struct, frozen=True, omit_defaults=True, gc=False):
    """Why a try failed; `kind` is a key of `errors.FAILURES`, `message` is for operators. `shared` says that the call failed
    for several rows at once, and that another row's failure stands for it."""

    kind: str
    message: str = ""
    upstream_status: int | None = None
    retry_after_s: float | None = None
    shared: bool = False

    @property
    def counts(self) -> bool:
        """True when it counts against the model's health."""
        return FAILURES[self.kind].counts and not self.shared

    @property
    def final(self) -> bool:
        """True when no other model is to be asked: the client is at fault, or the work may have been done already."""
        return FAILURES[self.kind].final


class Attempt(Struct, frozen=True, omit_defaults=True, gc=False):
    """One try at one model. Times in seconds, `started_s` from the arrival of the request. Of a streamed answer `first_s` is
    the time to its first piece, and `pieces` of it went out."""

    model: str
    started_s: float
    elapsed_s: float
    failure: Failure | None = None
    first_s: float | None = None
    pieces: int = 0


class Outcome(Struct, frozen=True, omit_defaults=True, gc=False):
    """What the policy hears about a model it named: a prediction, or the last failure.

    `served_by` differs from `model` when a peer stood in. `level` is 0 (first try), 1 (a retry) or 2 (a peer).
    `cost` is in the pool's unit of cost and covers every attempt that was started.
    """

    model: str
    prediction: Prediction | None = None
    failure: Failure | None = None
    attempts: tuple[Attempt, ...] = ()
    served_by: str = ""
    version: str = ""
    level: int = 0
    elapsed_s: float = 0.0
    cost: float = 0.0

    @property
    def ok(self) -> bool:
        """True when there is a prediction."""
        return self.prediction is not None

    @property
    def confidence(self) -> float | None:
        """The prediction's confidence in [0, 1]; None when it failed or has none."""
        return self.prediction.confidence if self.prediction is not None else None
