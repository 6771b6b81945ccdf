"""Holds what was seen against what a case expects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise

from rheostat.testing.cases import check_answers
from rheostat.testing.cases.check_pages import log_problems, metric_problems, series_growth, status_page_problems
from rheostat.testing.cases.drive import Seen
from rheostat.testing.cases.form import CaseError, Expect
from rheostat.testing.cases.names import model_of
from rheostat.testing.cases.tolerance import late

_SUBJECTS: Mapping[str, frozenset[str]] = {
    "req": check_answers.WORDS,
    "upstream": frozenset(
        ("calls", "calls_min", "calls_max", "concurrency_max", "calls_between", "is", "call", "aborted_within",
         "received_text")
    ),
    "breaker": frozenset(("state",)),
    "metric": frozenset(("labels", "is", "increase", "increase_min", "sum_over_labels", "scrapes", "monotone")),
    **dict.fromkeys(
        ("status_count", "switches", "series_growth_max", "log", "status_page", "all_output_lacks", "one_of",
         "config_refused"),
        frozenset(),
    ),
}  # fmt: skip
"""What a check is about, and the words that may stand beside it."""


def problems_of(seen: Seen) -> list[str]:
    """Return what is not as expected, one line each.

    Raises:
        CaseError: a check makes no sense.
    """
    told = []
    if seen.refused and not any(_speaks_of_refusal(check) for check in seen.case.expect):
        told.append(f"the gateway refused the config: {seen.output.strip()[-600:]}")
        return told
    for check in seen.case.expect:
        told += [f"{_shown(check)}: {problem}" for problem in _problems(check, seen)]
    return told


def _problems(check: Expect, seen: Seen) -> list[str]:
    subject = subject_of(check)
    if seen.refused and subject not in ("one_of", "config_refused"):
        return ["the gateway refused the config"]
    return list(_CHECKS[subject](check, seen))


def subject_of(check: Expect) -> str:
    """Return what a check is about.

    Raises:
        CaseError: it is about nothing, about two things, or has words that do not belong to it.
    """
    words = check.words()
    subjects = [name for name in _SUBJECTS if name in words]
    if len(subjects) != 1:
        raise CaseError(f"a check is about one of {', '.join(_SUBJECTS)}; this one is about {subjects or sorted(words)}")
    (subject,) = subjects
    strange = words - _SUBJECTS[subject] - {subject}
    if strange:
        raise CaseError(f"{sorted(strange)} cannot stand beside `{subject}`")
    if _SUBJECTS[subject] and not words - {subject}:
        raise CaseError(f"`{subject}` alone checks nothing")
    return subject


def _speaks_of_refusal(check: Expect) -> bool:
    return check.config_refused is True or any(_speaks_of_refusal(part) for part in check.one_of or ())


def _shown(check: Expect) -> str:
    return ", ".join(f"{word} {getattr(check, 'is_' if word == 'is' else word)!r}" for word in _ordered(check))


def _ordered(check: Expect) -> list[str]:
    words = check.words()
    return [name.rstrip("_") for name in check.__struct_fields__ if name.rstrip("_") in words]


def _req(check: Expect, seen: Seen) -> Iterator[str]:
    yield from check_answers.problems(check, seen.answers)


def _upstream(check: Expect, seen: Seen) -> Iterator[str]:
    name = check.upstream or ""
    if name not in seen.upstreams:
        raise CaseError(f"there is no upstream {name!r}")
    server = seen.upstreams[name]
    count = len(server.calls)
    if check.calls is not None and count != check.calls:
        yield f"{count} calls"
    if check.calls_min is not None and count < check.calls_min:
        yield f"{count} calls"
    if check.calls_max is not None and count > check.calls_max:
        yield f"{count} calls"
    if check.concurrency_max is not None and server.most_running > check.concurrency_max:
        yield f"{server.most_running} calls at a time"
    if check.calls_between is not None:
        low, high = check.calls_between
        times = [call.at - seen.began for call in server.calls if low <= call.at - seen.began <= high]
        if len(times) != check.is_:
            yield f"{len(times)} calls, at {[round(at, 2) for at in times[:10]]}"
    if check.call is None:
        return
    if check.call >= count:
        yield f"there were only {count} calls"
        return
    call = server.calls[check.call]
    if check.aborted_within is not None and (call.aborted is None or call.aborted - call.at > late(check.aborted_within)):
        yield "not aborted" if call.aborted is None else f"aborted after {call.aborted - call.at:.3f} s"
    if check.received_text is not None and call.text != check.received_text:
        yield f"received {call.text!r}"


def _breaker(check: Expect, seen: Seen) -> Iterator[str]:
    model = seen.status.get("models", {}).get(check.breaker)
    state = model.get("breaker") if model is not None else None
    if state is None or state != (check.state or "").replace("_", "-"):
        yield f"the status page says {state}"


def _status_count(check: Expect, seen: Seen) -> Iterator[str]:
    wanted = dict(check.status_count or {})
    answers = [answer for answer in seen.answers if not answer.cancelled]
    counted = Counter(answer.status for answer in answers)
    single = {each.req for each in seen.case.expect if isinstance(each.req, int) and _speaks_of_status(each)}
    others = any(answer.status not in wanted and answer.number not in single for answer in answers)
    if others or any(counted[status] != count for status, count in wanted.items()):
        yield f"got {dict(counted)}"


def _speaks_of_status(check: Expect) -> bool:
    """A check of a single request's status, which `status_count` need not count then."""
    return check.status is not None or check.status_in is not None or check.status_not is not None


def _switches(check: Expect, seen: Seen) -> Iterator[str]:
    assert check.switches is not None
    models = [model_of(answer) for answer in check_answers.chosen(check.switches.req, seen.answers)]
    count = sum(before != after for before, after in pairwise(models))
    if count > check.switches.max:
        yield f"{count} switches"


def _metric(check: Expect, seen: Seen) -> Iterator[str]:
    yield from metric_problems(check, seen)


def _series(check: Expect, seen: Seen) -> Iterator[str]:
    growth = series_growth(seen)
    if check.series_growth_max is not None and growth > check.series_growth_max:
        yield f"{growth} new series"


def _log(check: Expect, seen: Seen) -> Iterator[str]:
    yield from log_problems(check, seen)


def _status_page(check: Expect, seen: Seen) -> Iterator[str]:
    yield from status_page_problems(check, seen)


def _output(check: Expect, seen: Seen) -> Iterator[str]:
    places = {
        "the route log": seen.log, "what the gateway printed": seen.output, "the metrics page": seen.after,
        "the status page": str(seen.status), "the page that shows the config": seen.shown_config,
    }  # fmt: skip
    places |= {
        f"the answer to request {answer.number}": f"{dict(answer.headers)} {answer.body.decode('utf-8', 'replace')}"
        for answer in seen.answers
    }
    for word in check.all_output_lacks or ():
        yield from (f"{word!r} stands in {place}" for place, text in places.items() if word in text)


def _one_of(check: Expect, seen: Seen) -> Iterator[str]:
    every = [_problems(part, seen) for part in check.one_of or ()]
    if all(every):
        yield "none holds: " + "; ".join(problem for problems in every for problem in problems)


def _refused(check: Expect, seen: Seen) -> Iterator[str]:
    if seen.refused is not check.config_refused:
        yield "the gateway took the config" if check.config_refused else f"refused: {seen.output.strip()[-600:]}"


_CHECKS: Mapping[str, Callable[[Expect, Seen], Iterator[str]]] = {
    "req": _req, "upstream": _upstream, "breaker": _breaker, "metric": _metric, "status_count": _status_count,
    "switches": _switches, "series_growth_max": _series, "log": _log, "status_page": _status_page,
    "all_output_lacks": _output, "one_of": _one_of, "config_refused": _refused,
}  # fmt: skip
