"""Runs cases, many at a time: they mostly wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from rheostat.testing.cases.check import problems_of, subject_of
from rheostat.testing.cases.drive import drive
from rheostat.testing.cases.form import Case, CaseError, Unread, read_file

JOBS = 16
"""Cases at a time, each with a gateway process of its own."""
PASSED, FAILED, NOT_BUILT = "passed", "failed", "not built yet"


class Verdict(Struct, frozen=True):
    """What became of one case. `lacks` are the capabilities that are not built yet, `problems` what was not as expected."""

    id: str
    title: str
    state: str
    problems: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    seconds: float = 0.0


async def run_case(case: Case | Unread) -> Verdict:
    """Run one case to its verdict; whatever goes wrong on the way makes it fail."""
    if isinstance(case, Unread):
        return Verdict(case.id, case.title, FAILED, (case.problem,))
    began = time.monotonic()
    try:
        for check in case.expect:
            subject_of(check)
        seen = await drive(case)
        if seen.lacks:
            return Verdict(case.id, case.title, NOT_BUILT, (), seen.lacks)
        problems = tuple(problems_of(seen))
    except Exception as error:  # a case that cannot be run has failed, and the others go on
        problems = (_told(error),)
    state = FAILED if problems else PASSED
    return Verdict(case.id, case.title, state, problems, (), time.monotonic() - began)


async def run_cases(
    cases: Sequence[Case | Unread], *, jobs: int = JOBS, tell: Callable[[Verdict], None] | None = None
) -> list[Verdict]:
    """Run cases, those that last longest first, and return their verdicts in the order given.

    Args:
        jobs: how many run at a time.
        tell: hears of every verdict when it is there.
    """
    places = asyncio.Semaphore(jobs)
    verdicts: dict[int, Verdict] = {}

    async def one(index: int) -> None:
        async with places:
            verdict = await run_case(cases[index])
        verdicts[index] = verdict
        if tell is not None:
            tell(verdict)

    order = sorted(range(len(cases)), key=lambda index: -_lasts(cases[index]))
    async with asyncio.TaskGroup() as group:
        for index in order:
            group.create_task(one(index))
    return [verdicts[index] for index in range(len(cases))]


def run_files(
    paths: Sequence[Path],
    *,
    only: Sequence[str] = (),
    jobs: int = JOBS,
    slow: float = 1.0,
    tell: Callable[[Verdict], None] | None = None,
) -> list[Verdict]:
    """Run the cases of some files; `only` picks some by their id, and all their times are multiplied by `slow`.

    Raises:
        CaseError: a file cannot be read, or an id is not in any.
    """
    cases = [case for path in paths for case in read_file(path, slow)]
    strange = set(only) - {case.id for case in cases}
    if strange:
        raise CaseError(f"no case {', '.join(sorted(strange))} in {', '.join(map(str, paths))}")
    picked = [case for case in cases if not only or case.id in only]
    return asyncio.run(run_cases(picked, jobs=jobs, tell=tell))


def _lasts(case: Case | Unread) -> float:
    return case.lasts_s if isinstance(case, Case) else 0.0


def _told(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_told(part) for part in error.exceptions)
    return str(error) if isinstance(error, CaseError) else f"{type(error).__name__}: {error}"
