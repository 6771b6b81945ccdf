"""What a monitor sees when something is not as usual."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Protocol

from msgspec import Struct

from rheostat.types import Feedback, RouteRecord

Severity = Literal["warning", "critical"]


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that is not as usual now.

    `kind` says what (`share_drift`), `subject` where (`route default, model large`); the two name an alert. `value` is what
    was found, `usual` what is compared with, `requests` on how many it rests. `text` tells it in a sentence.
    """

    kind: str
    subject: str
    text: str
    value: float
    usual: float | None = None
    requests: int = 0
    severity: Severity = "warning"


class Monitor(Protocol):
    """Watches one thing; sees every record, in order, with a time in seconds that never goes back."""

    def observe(self, record: RouteRecord, now: float) -> None:
        """Take note of a finished request."""

    def judged(self, feedback: Feedback, now: float) -> None:
        """Take note of a later judgement."""

    def findings(self, now: float) -> Iterable[Finding]:
        """Return what is not as usual now."""

    def accept(self, subject: str) -> None:
        """Take what happens there now for usual."""
