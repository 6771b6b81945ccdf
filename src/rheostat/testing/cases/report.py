"""Verdicts as people read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rheostat.testing.cases.run import FAILED, NOT_BUILT, PASSED, Verdict


def told(verdict: Verdict) -> str:
    """Return one line of progress."""
    return f"{verdict.state:>13}  {verdict.id}  {verdict.seconds:.1f} s"


def table(verdicts: Sequence[Verdict]) -> str:
    """Return a table with a line for each case, and under it what was wrong or lacking."""
    width = max((len(verdict.id) for verdict in verdicts), default=0)
    lines = []
    for verdict in verdicts:
        lines.append(f"{verdict.id:<{width}}  {verdict.state:<13}  {verdict.seconds:6.1f} s  {verdict.title}")
        lines += [f"{'':<{width}}  - {problem}" for problem in verdict.problems]
        if verdict.lacks:
            lines.append(f"{'':<{width}}  - not built yet: {', '.join(verdict.lacks)}")
    return "\n".join(lines)


def summary(verdicts: Sequence[Verdict]) -> str:
    """Return the counts, with the ids of what did not run and why."""
    counts = Counter(verdict.state for verdict in verdicts)
    line = ", ".join(f"{counts[state]} {state}" for state in (PASSED, FAILED, NOT_BUILT))
    lacking = [f"{verdict.id} ({', '.join(verdict.lacks)})" for verdict in verdicts if verdict.lacks]
    return f"{len(verdicts)} cases: {line}" + (f"\nnot built yet: {'; '.join(lacking)}" if lacking else "")
