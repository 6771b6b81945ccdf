"""Profiles from what was served: route records say how long a model took, judgements how often it was right."""

from __future__ import annotations

import platform
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from os import cpu_count

from rheostat.lab.bootstrap import bootstrap
from rheostat.lab.records import judged_value
from rheostat.pool.profile import Profile, Quality, spread_of
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
                else:
                    failures[model][attempt.failure.kind] += 1
        judged = feedback.get(record.id)
        alone = record.selected_model
        if judged is not None and versions.get(alone) == record.selected_version and len(record.weights) == 1:
            value = judged_value(record, judged)
            if value is not None and 0.0 <= value <= 1.0:
                right[alone].append(value)
    made = datetime.now(UTC).isoformat(timespec="seconds")
    machine = f"{cpu_count()} x {platform.machine()}, {platform.system()} {platform.release()}"
    return [
        Profile(
            model=name,
            version=version,
            made=made,
            machine=machine,
            source="records",
            unit="calls at a time",
            cost=costs[name],
            alone=spread_of(times[name]),
            quality=_quality(right[name]) if right[name] else None,
            failures=dict(failures[name]),
        )
        for name, version in versions.items()
        if times[name]
    ]


def _quality(values: list[float]) -> Quality:
    interval = bootstrap(values)
    return Quality(accuracy=interval.mean, low=interval.low, high=interval.high, rows=len(values), chosen=True)
