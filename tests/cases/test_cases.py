"""The project's own machine-readable cases, and others of the same form where they are at hand, against a real gateway."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rheostat.testing.cases import FAILED, NOT_BUILT, PASSED, Unread, Verdict, read_file, run_files
from rheostat.testing.cases.slowed import slowed

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
    # Dozens of gateways share the machine here; what failed beside them has to hold by itself, at half its speed.
    failed = [verdict.id for verdict in verdicts if verdict.state == FAILED]
    alone = [verdict for each in failed for verdict in run_files(files, only=(each,), jobs=1, slow=2.0)]
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


@pytest.mark.parametrize(("more", "state"), [("", FAILED), (", {req: 1, status_not: [200]}", PASSED)])
def test_statuses_are_counted_exactly_but_for_requests_that_are_spoken_of(more: str, state: str, tmp_path: Path) -> None:
    case = (
        "config: {models: {a: {}}, route: {primary: a}, retries: 0}, "
        "upstream: {a: [{do: ok, body: A, times: 1}, {do: status, code: 500}]}, "
        f"requests: [{{at: 0}}, {{at: 0.3}}], expect: [{{status_count: {{200: 1}}}}{more}]"
    )
    (tmp_path / "one.yaml").write_text(f"format: 1\ncases:\n- {{id: X, kind: x, title: x, {case}}}\n")
    (verdict,) = run_files([tmp_path / "one.yaml"])
    assert verdict.state == state, verdict.problems


def test_a_slow_case_has_longer_times_and_the_same_words() -> None:
    case = {
        "config": {"timeouts": {"attempt_s": 0.5}, "models": {"a": {"batch": {"max": 4, "wait_ms": 20}}},
                   "rheostat": {"models": {"a": {"timeout": "300ms", "breaker": {"window": 30, "minCalls": 5}}}}},
        "upstream": {"a": [{"do": "status", "code": 429, "headers": {"retry-after": "2"}}, {"do": "ok", "delay": 0.1}]},
        "requests": [{"at": 1, "count": 2, "every": 0.25}],
        "expect": [{"req": 0, "elapsed_p": 95, "max": 1.5}, {"switches": {"req": "all", "max": 3}},
                   {"upstream": "a", "calls_between": [0.5, 2], "is": 2}],
    }  # fmt: skip
    assert slowed(case, 1.0) is case
    assert slowed(case, 2.0) == {
        "config": {"timeouts": {"attempt_s": 1.0}, "models": {"a": {"batch": {"max": 4, "wait_ms": 40.0}}},
                   "rheostat": {"models": {"a": {"timeout": "600ms", "breaker": {"window": 60.0, "minCalls": 5}}}}},
        "upstream": {"a": [{"do": "status", "code": 429, "headers": {"retry-after": "4"}}, {"do": "ok", "delay": 0.2}]},
        "requests": [{"at": 2.0, "count": 2, "every": 0.5}],
        "expect": [{"req": 0, "elapsed_p": 95, "max": 3.0}, {"switches": {"req": "all", "max": 3}},
                   {"upstream": "a", "calls_between": [1.0, 4.0], "is": 2}],
    }  # fmt: skip
