"""`--skipped`: of the whole suite, run only what the last run here had to skip, now that it may have what was missing."""

from __future__ import annotations

import pytest

KEPT = "rheostat/skipped"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--skipped", action="store_true", help="run only the tests that the last run without this skipped")


class Skips:
    """Takes note of the tests, and of the files of tests, that were skipped."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self.found.append(report.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped:
            self.found.append(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if (cache := getattr(session.config, "cache", None)) is not None:  # none with `-p no:cacheprovider`
            cache.set(KEPT, self.found)


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("--skipped"):
        config.pluginmanager.register(Skips())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--skipped"):
        return
    cache = getattr(config, "cache", None)
    known = cache.get(KEPT, None) if cache is not None else None
    if not known:
        raise pytest.UsageError("`--skipped` needs an earlier run of the suite that skipped something")
    wanted = set(known)
    kept = [item for item in items if item.nodeid in wanted or item.nodeid.partition("::")[0] in wanted]
    if len(kept) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
        items[:] = kept
