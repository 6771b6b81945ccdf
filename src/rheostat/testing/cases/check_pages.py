"""Checks of the metrics page, the status page and the route log."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from msgspec import UNSET
from prometheus_client.parser import text_string_to_metric_families

from rheostat.testing.cases.drive import Seen
from rheostat.testing.cases.form import CaseError, Expect
from rheostat.testing.cases.names import has_idea, metric_name

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples_of(page: str) -> Samples:
    """Return every series of a metrics page with its value."""
    return {
        (sample.name, frozenset(sample.labels.items())): float(sample.value)
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def series_growth(seen: Seen) -> int:
    """Return how many series there are that were not there before the first request."""
    return len(samples_of(seen.after).keys() - samples_of(seen.before).keys())


def metric_problems(check: Expect, seen: Seen) -> Iterator[str]:
    """Say what is not as expected of a metric."""
    try:
        name, labels = metric_name(check.metric or "", check.labels or {})
    except KeyError:
        raise CaseError(f"the metric {check.metric!r} is not known") from None
    now, count = _summed(seen.after, name, labels)
    if check.sum_over_labels is None and check.is_ is not UNSET and count != 1:
        yield f"{count} series of {name} have these labels; `sum_over_labels` adds them up"
    if check.is_ is not UNSET and now != check.is_:
        yield f"{name} is {now:g}"
    risen = now - _summed(seen.before, name, labels)[0]
    if check.increase is not None and risen != check.increase:
        yield f"{name} has risen by {risen:g}"
    if check.increase_min is not None and risen < check.increase_min:
        yield f"{name} has risen by {risen:g}"
    if check.monotone:
        values = [_summed(page, name, labels)[0] for page in (*seen.scrapes, seen.after)]
        if values != sorted(values):
            yield f"{name} went down: {values}"


def _summed(page: str, name: str, labels: Mapping[str, str]) -> tuple[float, int]:
    """Return the sum of a metric's series that have certain labels, and their number."""
    wanted = set(labels.items())
    found = [value for (own, given), value in samples_of(page).items() if own == name and wanted <= given]
    return sum(found), len(found)


def log_problems(check: Expect, seen: Seen) -> Iterator[str]:
    """Say what is not as expected of the route log."""
    assert check.log is not None
    rows = seen.log.split("\n")[:-1] if seen.log.endswith("\n") else seen.log.split("\n")
    rows = [row for row in rows if row or seen.log]
    if check.log.count is not None and len(rows) != check.log.count:
        yield f"{len(rows)} rows"
    if check.log.each_parses:
        for number, row in enumerate(rows):
            try:
                parsed = json.loads(row)
            except ValueError as error:
                yield f"row {number} is no JSON: {error}"
            else:
                if not isinstance(parsed, dict):
                    yield f"row {number} is no object"
    wanted = (check.log.has,) if isinstance(check.log.has, str) else check.log.has
    for idea in wanted:
        if not has_idea(seen.log, idea):
            yield f"nothing of {idea!r} in it"


def status_page_problems(check: Expect, seen: Seen) -> Iterator[str]:
    """Say what is not as expected of the status page."""
    assert check.status_page is not None
    wanted = check.status_page
    error = seen.status.get("last_error")
    if wanted.last_error_set is not None and (error is not None) is not wanted.last_error_set:
        yield f"its last error is {error!r}"
    if wanted.reloads is not None and seen.status.get("reloads") != wanted.reloads:
        yield f"it tells of {seen.status.get('reloads')} reloads"
