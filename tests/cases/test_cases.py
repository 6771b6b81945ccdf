"""The project's own machine-readable cases, and others of the same form where they are at hand, against a real gateway."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rheostat.testing.cases import FAILED, NOT_BUILT, Unread, Verdict, read_file, run_files

HERE = Path(__file__).parent
OWN = HERE / "own.yaml"
OTHERS = Path(os.environ.get("RHEOSTAT_CASES", HERE.parents[2] / "shared" / "cases" / "cases-open.yaml"))


def check(verdicts: list[Verdict]) -> None:
    """Fail with what was wrong in each case; say which need what is not built yet."""
    for verdict in verdicts:
        if verdict.state == NOT_BUILT:
            print(f"{verdict.id} not built yet: {', '.join(verdict.lacks)}")
    wrong = [f"{verdict.id}: {problem}" for verdict in verdicts if verdict.state == FAILED for problem in verdict.problems]
    assert not wrong, "\n".join(wrong)


def test_all_cases() -> None:
    files = [OWN, OTHERS] if OTHERS.is_file() else [OWN]
    verdicts = run_files(files)
    # Dozens of gateways share the machine here; what failed beside them has to hold by itself.
    failed = [verdict.id for verdict in verdicts if verdict.state == FAILED]
    alone = [verdict for each in failed for verdict in run_files(files, only=(each,), jobs=1)]
    check([verdict for verdict in verdicts if verdict.state != FAILED] + alone)


def test_the_other_cases_are_at_hand() -> None:
    if not OTHERS.is_file():
        pytest.skip("no other cases: RHEOSTAT_CASES names no file")
    assert not [case for case in read_file(OTHERS) if isinstance(case, Unread)]


@pytest.mark.parametrize(
    "case",
    [
        "config: {models: {a: {}}, route: {primary: a}, wrong: 1}, expect: []",
        "config: {models: {a: {}}, route: {primary: a}}, expect: [{req: 0, stat: 200}]",
        "config: {models: {a: {}}}, upstream: {a: [{do: explode}]}, expect: []",
        "config: {models: {a: {}}, route: {primary: a}}, requests: [{at: 0}], expect: [{req: 0}]",
        "config: {models: {a: {}}, route: {primary: a, cascade: [a, a]}}, expect: []",
        "config: {models: {a: {}}, route: {primary: a}}, expect: [{status_count: {}, calls: 1}]",
    ],
)
def test_unknown_words_fail(case: str, tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(f"format: 1\ncases:\n- {{id: X, kind: x, title: x, {case}}}\n")
    (verdict,) = run_files([tmp_path / "one.yaml"])
    assert verdict.state == FAILED
