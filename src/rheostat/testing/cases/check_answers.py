"""Checks of answers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import UNSET

from rheostat.testing.cases.client import Answer
from rheostat.testing.cases.form import CaseError, Expect
from rheostat.testing.cases.names import model_of, part_of
from rheostat.testing.cases.tolerance import early, late

WORDS = frozenset(
    ("status", "status_in", "status_not", "elapsed_max", "elapsed_min", "elapsed_p", "max", "body_has", "body_lacks", "json",
     "is", "approx", "tol", "valid_json", "header", "has", "int_between", "model", "stream_text", "stream_chunks",
     "stream_ends_with", "echoes_own_id")
)  # fmt: skip
"""The words that may stand beside `req`."""
_RANGE = re.compile(r"(\d+)\.\.(\d+)")
_SHOWN = 3


def chosen(req: int | str, answers: Sequence[Answer]) -> list[Answer]:
    """Return the answers that `req` speaks of; of several, those that were cancelled are left out.

    Raises:
        CaseError: there is no such request.
    """
    if req == "all":
        return [answer for answer in answers if not answer.cancelled]
    if isinstance(req, str):
        found = _RANGE.fullmatch(req)
        if found is None:
            raise CaseError(f"`req: {req}` is a number, a..b or all")
        first, last = int(found[1]), int(found[2])
        if not first <= last < len(answers):
            raise CaseError(f"`req: {req}`: there are {len(answers)} requests")
        return [answer for answer in answers[first : last + 1] if not answer.cancelled]
    if not 0 <= req < len(answers):
        raise CaseError(f"`req: {req}`: there are {len(answers)} requests")
    return [answers[req]]


def problems(check: Expect, answers: Sequence[Answer]) -> Iterator[str]:
    """Say which answers are not as expected; the first few of them."""
    _check_pairs(check)
    picked = chosen(check.req if check.req is not None else "all", answers)
    if not picked:
        yield "no request is left to be checked"
    wrong = [(answer, told) for answer in picked if (told := next(_wrong(check, answer), None)) is not None]
    for answer, told in wrong[:_SHOWN]:
        yield f"request {answer.number}: {told}"
    if len(wrong) > _SHOWN:
        yield f"... and {len(wrong) - _SHOWN} more of {len(picked)}"
    if check.elapsed_p is not None and check.max is not None and picked:
        quick = sum(answer.elapsed_s <= late(check.max) for answer in picked) / len(picked)
        if quick < check.elapsed_p:
            slowest = max(answer.elapsed_s for answer in picked)
            yield f"only {quick:.1%} of {len(picked)} within {check.max:g} s; the slowest took {slowest:.3f} s"


def _check_pairs(check: Expect) -> None:
    words = check.words()
    for one, others in (
        ("json", ("is", "approx")), ("is", ("json",)), ("approx", ("json",)), ("tol", ("approx",)), ("max", ("elapsed_p",)),
        ("elapsed_p", ("max",)), ("header", ("has", "int_between")), ("has", ("header",)), ("int_between", ("header",)),
    ):  # fmt: skip
        if one in words and not words & set(others):
            raise CaseError(f"`{one}` needs {' or '.join(others)}")


def _wrong(check: Expect, answer: Answer) -> Iterator[str]:
    """Yield what is wrong with one answer."""
    status = answer.status
    text = answer.body.decode("utf-8", "replace")
    if (
        (check.status is not None and status != check.status)
        or (check.status_in is not None and status not in check.status_in)
        or (check.status_not is not None and (status is None or status in check.status_not))
    ):
        yield answer.shown
    if check.elapsed_max is not None and answer.elapsed_s > late(check.elapsed_max):
        yield f"took {answer.elapsed_s:.3f} s"
    if check.elapsed_min is not None and answer.elapsed_s < early(check.elapsed_min):
        yield f"took {answer.elapsed_s:.3f} s"
    if check.body_has is not None and check.body_has not in text:
        yield answer.shown
    if check.body_lacks is not None and check.body_lacks in text:
        yield answer.shown
    if check.json is not None:
        yield from _wrong_part(check, answer)
    if check.valid_json is not None and answer.json is None:
        yield f"no strict JSON: {answer.shown}"
    if check.header is not None:
        yield from _wrong_header(check, answer)
    if check.model is not None and model_of(answer) != check.model:
        yield f"answered by {model_of(answer)}: {answer.shown}"
    if check.echoes_own_id is not None and (status != 200 or f'"{answer.own_id}"' not in text) is check.echoes_own_id:
        yield f"carried {answer.own_id}: {answer.shown}"
    yield from _wrong_stream(check, answer)


def _wrong_part(check: Expect, answer: Answer) -> Iterator[str]:
    try:
        found = part_of(answer, check.json or "")
    except KeyError:
        yield f"nothing at {check.json}: {answer.shown}"
        return
    if check.is_ is not UNSET and (found != check.is_ or isinstance(found, bool) is not isinstance(check.is_, bool)):
        yield f"{check.json} is {found!r}"
    if check.approx is not None:
        tolerance = check.tol if check.tol is not None else 1e-6
        if isinstance(found, bool) or not isinstance(found, int | float) or abs(found - check.approx) > tolerance:
            yield f"{check.json} is {found!r}"


def _wrong_header(check: Expect, answer: Answer) -> Iterator[str]:
    value = answer.headers.get((check.header or "").lower())
    if check.has is not None and (value is None or check.has not in value):
        yield f"{check.header} is {value!r}"
    if check.int_between is not None:
        low, high = check.int_between
        if value is None or not value.isdigit() or not low <= int(value) <= high:
            yield f"{check.header} is {value!r}"


def _wrong_stream(check: Expect, answer: Answer) -> Iterator[str]:
    stream = answer.stream
    if check.stream_text is not None and "".join(stream.pieces) != check.stream_text:
        yield f"the text {''.join(stream.pieces)!r}: {answer.shown}"
    if check.stream_chunks is not None and len(stream.pieces) != check.stream_chunks:
        yield f"{len(stream.pieces)} pieces: {answer.shown}"
    if check.stream_ends_with is not None and stream.end != check.stream_ends_with:
        yield f"ends with {stream.end or 'nothing'}: {answer.shown}"
