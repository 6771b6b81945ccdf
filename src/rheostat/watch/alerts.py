"""What rings now, each thing once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, Literal, NamedTuple

from msgspec import Struct, structs

from rheostat.watch.finding import Finding, Severity

CONFIRM = 2
"""Looks in a row that must find a thing before it rings."""
CALM = 8
"""Looks in a row, half a window of them, that must not find it before it ends: what comes and goes rings once."""
_ENDED = 200
_MOST = 200

ADVICE: Final[dict[str, str]] = {
    "share_drift": "Compare the inputs and the models' versions of then and now.",
    "weight_collapse": "The weights no longer tell requests apart: go back to the policy before, and train it again.",
    "confidence_shift": "Thresholds on this model mean something else now: `rheostat retune` on the new version's answers.",
    "input_drift": "The policy was tuned on other inputs: label some of the new ones, and tune again.",
    "model_slow": "Look at the model's own load; a lower `max_concurrency` or `timeout` moves traffic elsewhere.",
    "router_slow": "The gateway itself is busy: look at its processor, and at signals that cost much.",
    "flapping": "The route goes to and fro: give its threshold a `hysteresis`, or its breaker a longer ramp.",
    "cost_overrun": "More requests reach dear models: look at the shares of calls; an entry in `budgets` holds the cost.",
    "errors": "Look at the breakers in /admin/status, and at one of the requests: `rheostat explain --last`.",
    "fallbacks": "Look at the breakers in /admin/status, and at one of the requests: `rheostat explain --last`.",
    "overflow": "The model is too full for its traffic: more replicas, a larger `max_concurrency`, or a lower threshold.",
    "accuracy": "Compare inputs and versions of then and now; `rheostat retune` when a model is new, else tune again.",
}
"""What to do about each kind of finding."""


class Alert(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that rings, or rang. Times are seconds since 1970 UTC; the rest is the last finding's."""

    id: str
    kind: str
    subject: str
    severity: Severity
    text: str
    advice: str
    value: float
    since: float
    usual: float | None = None
    requests: int = 0
    ended: float | None = None


class Change(NamedTuple):
    """An alert began or ended."""

    what: Literal["raised", "ended"]
    alert: Alert


class _Seen(Struct):
    """How often in a row something was found, or was not found any more."""

    found: int = 0
    calm: int = 0
    alert: Alert | None = None


class Alerts:
    """Turns what monitors find at every look into alerts: each kind and subject rings once until it is over.

    At most 200 ring at a time, and the last 200 that ended are kept.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], _Seen] = {}
        self._ended: deque[Alert] = deque(maxlen=_ENDED)

    def update(self, findings: Iterable[Finding], wall: float) -> list[Change]:
        """Take in one look; returns which alerts began or ended by it."""
        changes: list[Change] = []
        now = {(each.kind, each.subject): each for each in findings}
        for key, finding in now.items():
            seen = self._seen.get(key)
            if seen is None:
                if len(self._seen) >= _MOST:
                    continue
                seen = self._seen[key] = _Seen()
            seen.found, seen.calm = seen.found + 1, 0
            if seen.alert is not None:
                seen.alert = _alert(finding, seen.alert.since)
            elif seen.found >= CONFIRM:
                seen.alert = _alert(finding, wall)
                changes.append(Change("raised", seen.alert))
        for key in [key for key in self._seen if key not in now]:
            seen = self._seen[key]
            seen.calm += 1
            if seen.alert is None or seen.calm >= CALM:
                del self._seen[key]
                if seen.alert is not None:
                    changes.append(Change("ended", self._end(seen.alert, wall)))
        return changes

    def end(self, alert_id: str, wall: float) -> Alert | None:
        """End one by hand; it rings again when it is found again. None when none of this id rings."""
        for key, seen in self._seen.items():
            if seen.alert is not None and seen.alert.id == alert_id:
                del self._seen[key]
                return self._end(seen.alert, wall)
        return None

    def ringing(self) -> list[Alert]:
        """Return what rings now, the oldest first."""
        return sorted((each.alert for each in self._seen.values() if each.alert is not None), key=lambda each: each.since)

    def ended(self) -> list[Alert]:
        """Return what rang and is over, the last first."""
        return list(reversed(self._ended))

    def _end(self, alert: Alert, wall: float) -> Alert:
        over = structs.replace(alert, ended=wall)
        self._ended.append(over)
        return over


def _alert(finding: Finding, since: float) -> Alert:
    name = blake2b(f"{finding.kind}|{finding.subject}|{since}".encode(), digest_size=6).hexdigest()
    return Alert(
        id=name, kind=finding.kind, subject=finding.subject, severity=finding.severity, text=finding.text,
        advice=ADVICE[finding.kind], value=finding.value, usual=finding.usual, requests=finding.requests, since=since,
    )  # fmt: skip
