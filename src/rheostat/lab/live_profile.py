"""Profiles from what was served: route records say how long a model took, judgements how often it was right."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from rheostat.lab.bootstrap import bootstrap
from rheostat.lab.records import judged_value
from rheostat.pool.profile import Profile, Quality, spread_of, this_machine
from rheostat.types import Feedback, RouteRecord


def live_profiles(
    records: Iterable[RouteRecord], feedback: Mapping[str, Feedback], versions: Mapping[str, str], costs: Mapping[str, float]
) -> list[Profile]:
    """Return a profile of every model in `versions` whose version has answered in the records.

    Times are those of single tries under the load there was. Judged are the requests that the model alone answered: it was
    chosen for them, so that their share does not compare models.
    """
    times: dict[str, list[float]] = defaultdict(list)
    failures: dict[str, Counter[str]] = defaultdict(Counter)
    right: dict[str, list[float]] = defaultdict(list)
    for record in records:
        for outcome in record.outcomes:
            model = outcome.served_by or outcome.model
            if versions.get(model) != outcome.version:
                continue
            for attempt in outcome.attempts:
                if attempt.model != model:
                    continue
                if attempt.failure is None:
                    times[model].append(attempt.elapsed_s)
                elif attempt.failure.kind != "cancelled":
                    failures[model][attempt.failure.kind] += 1
        judged = feedback.get(record.id)
        alone = record.selected_model
        if judged is not None and versions.get(alone) == record.selected_version and len(record.weights) == 1:
            value = judged_value(record, judged)
            if value is not None and 0.0 <= value <= 1.0:
                right[alone].append(value)
    made = datetime.now(UTC).isoformat(timespec="seconds")
    return [
        Profile(
            model=name,
            version=version,
            made=made,
            machine=this_machine(),
            source="records",
            unit="calls at a time",
            cost=costs[name],
            alone=spread_of(times[name]),
            quality=quality_of(right[name], chosen=True) if right[name] else None,
            failures=dict(failures[name]),
        )
        for name, version in versions.items()
        if times[name]
    ]


def quality_of(right: Sequence[float], chosen: bool = False) -> Quality:
    """Return the mean of values in [0, 1] with its bootstrap interval."""
    interval = bootstrap(right)
    return Quality(accuracy=interval.mean, low=interval.low, high=interval.high, rows=len(right), chosen=chosen)
