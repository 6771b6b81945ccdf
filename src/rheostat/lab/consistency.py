"""Is what was served what the config means? Stored records are decided and mixed again, and compared."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from rheostat.chance import chance
from rheostat.combine import combine
from rheostat.lab.redecide import Again, Way, asked_of, redecide, unrecorded
from rheostat.signals.base import AnswerScorer
from rheostat.types import RouteRecord

TOLERANCE: Final = 1e-6
"""Weights, confidences, scores and signals may differ by this much: other machines add in another order."""
KEPT: Final = 100


class Mismatch(Struct, frozen=True, kw_only=True):
    """One request on which what was served is not what comes out again.

    `what` is label, confidence, scores, weights, calls or signal NAME; `reason` says what the difference points to.
    """

    request: str
    route: str
    what: str
    served: str
    again: str
    reason: str


class Consistency(Struct, frozen=True, kw_only=True):
    """What the comparison found, in records.

    `mixed`: the answer was mixed again from the recorded weights and answers. `decided`: the policy decided again, on the
    recorded signals and answers. `agreed`: everything compared was equal. `not_mixed` and `not_decided` count by reason
    what could not be compared. `kinds` counts all mismatches by what differs, `mismatches` holds the first 100.
    """

    records: int
    mixed: int
    decided: int
    agreed: int
    not_mixed: Mapping[str, int]
    not_decided: Mapping[str, int]
    kinds: Mapping[str, int]
    mismatches: tuple[Mismatch, ...]


def sampled(records: Iterable[RouteRecord], count: int) -> list[RouteRecord]:
    """Return `count` records chosen by a hash of their id, in the order met; holds no more than these at a time."""
    kept: list[tuple[float, int, RouteRecord]] = []
    for number, record in enumerate(records):
        draw = -chance("consistency", record.id)
        if len(kept) < count:
            heapq.heappush(kept, (draw, number, record))
        elif kept and draw > kept[0][0]:
            heapq.heapreplace(kept, (draw, number, record))
    return [record for _, _, record in sorted(kept, key=lambda one: one[1])]


def consistency(
    records: Iterable[RouteRecord], ways: Mapping[str, Way], *, any_version: bool = False, keep: int = KEPT
) -> Consistency:
    """Mix every answer again and let every policy decide again; compare with what was served.

    Args:
        ways: by route; records of other routes are only mixed again.
        any_version: compare also with records that another version of the policy left.
        keep: how many mismatches are kept with their details.
    """
    total = mixed = decided = agreed = 0
    not_mixed: Counter[str] = Counter()
    not_decided: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    kept: list[Mismatch] = []
    for record in records:
        total += 1
        found: list[Mismatch] = []
        compared = False
        if why := _unmixable(record):
            not_mixed[why] += 1
        else:
            mixed, compared = mixed + 1, True
            found += _mixed_again(record)
        way = ways.get(record.route)
        if why := _undecidable(record, way, any_version):
            not_decided[why] += 1
        elif way is not None:
            decided, compared = decided + 1, True
            found += [*_signals_again(record, way), *_decided_again(record, redecide(record, way))]
        agreed += compared and not found
        kinds.update(one.what for one in found)
        kept += found[: max(0, keep - len(kept))]
    return Consistency(
        records=total, mixed=mixed, decided=decided, agreed=agreed, not_mixed=not_mixed, not_decided=not_decided,
        kinds=kinds, mismatches=tuple(kept),
    )  # fmt: skip


AGAIN = ("hit", "shared")


def _unmixable(record: RouteRecord) -> str:
    if record.label is None:
        return "it ended without an answer"
    if record.cache in AGAIN:
        return "it was given the answer to another request"
    return "" if record.weights else "a preset answered"


def _undecidable(record: RouteRecord, way: Way | None, any_version: bool) -> str:
    if way is None:
        return f"route {record.route} is not in the config"
    if not any_version and record.policy_version != way.version:
        return f"served by policy version {record.policy_version or 'unknown'}, the config has {way.version}"
    if record.cache in AGAIN:
        return "it was given the answer to another request"
    if record.status in ("cancelled", "rejected") or not record.steps:
        return f"it was {record.status}"
    if "deadline passed" in record.fallback_reason:
        return "its deadline ended it, and time is not replayed"
    if lacking := unrecorded(way.policy, record):
        return f"its rules read {lacking}, which the record does not hold"
    return ""


def _mixed_again(record: RouteRecord) -> Iterator[Mismatch]:
    """The recorded weights over the recorded answers against the recorded answer."""
    made = combine(record.weights, record.outcomes)
    reason = "the recorded weights over the recorded answers give another answer: the record was changed, or mixing was"
    if made is None:
        yield _mismatch(record, "label", record.label, None, "the record holds no answer of a model that has weight")
        return
    said = record.guess if record.review else record.label
    if made.label != said:
        yield _mismatch(record, "label", said, made.label, reason)
    if _apart(made.confidence, record.confidence):
        yield _mismatch(record, "confidence", record.confidence, made.confidence, reason)
    if record.scores is not None and _far(record.scores, made.scores or {}):
        yield _mismatch(record, "scores", dict(record.scores), dict(made.scores or {}), reason)


def _decided_again(record: RouteRecord, again: Again) -> Iterator[Mismatch]:
    if again.stuck:
        yield _mismatch(record, "calls", sorted(asked_of(record.steps, record)), sorted(again.asked), again.stuck)
        return
    reason = (
        "the same policy decides otherwise on what the record holds: another pool state (availability, cost limit), "
        "or not the same policy"
    )
    if again.trouble and not record.fallback_reason.startswith(again.trouble):
        reason = f"the policy fails now: {again.trouble}"
    if again.asked != asked_of(record.steps, record):
        yield _mismatch(record, "calls", sorted(asked_of(record.steps, record)), sorted(again.asked), reason)
    if _far(record.weights, again.weights):
        yield _mismatch(record, "weights", dict(record.weights), dict(again.weights), reason)
    elif again.label != record.label:
        yield _mismatch(record, "label", record.label, again.label, reason)


def _signals_again(record: RouteRecord, way: Way) -> Iterator[Mismatch]:
    """Signals of requests whose text was kept, made again."""
    kept = record.input
    if kept is None or kept.text is None or kept.changed or kept.kind != "text":
        return
    request = way.request(record)
    for scorer in way.scorers:
        if isinstance(scorer, AnswerScorer):
            continue
        try:
            made = scorer.score(request)
        except Exception:  # as when served: the signal is absent
            made = {}
        for name in scorer.names:
            if name in record.signals and _apart(record.signals[name], made.get(name)):
                reason = "its scorer gives another value now: its file changed, or it depends on more than the request"
                yield _mismatch(record, f"signal {name}", record.signals[name], made.get(name), reason)


def _far(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    return any(_apart(one.get(name, 0.0), other.get(name, 0.0)) for name in {*one, *other})


def _apart(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is not other
    return not abs(one - other) <= TOLERANCE and one == one  # noqa: PLR0124  NaN is equal to nothing


def _mismatch(record: RouteRecord, what: str, served: Any, again: Any, reason: str) -> Mismatch:
    return Mismatch(
        request=record.id, route=record.route, what=what, served=_words(served), again=_words(again), reason=reason
    )  # fmt: skip


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_words(number)}" for name, number in value.items()) + "}"
    if isinstance(value, float):
        return f"{value:.6g}"
    return "nothing" if value is None else str(value)
