"""A small real pool, evaluated once; every test works on a copy."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from rheostat.cli.app import app
from tests.jobs.real_pool import config, text_pool

Run = Callable[..., Result]


def invoke(arguments: Sequence[str], code: int = 0, text: str | None = None) -> Result:
    """Run a command; fail with all that it said when it ends otherwise than with `code`."""
    result = CliRunner().invoke(app, list(arguments), input=text)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, f"exit code {result.exit_code}\n{result.stdout}\n{result.stderr}"
    assert "Traceback" not in result.output
    return result


@pytest.fixture(scope="session")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evaluated")
    text_pool(folder)
    config(folder)
    invoke(["evaluate", str(folder / "rheostat.yaml"), str(folder / "data.csv"), "--out", str(folder / "outcomes.parquet")])
    return folder


@pytest.fixture
def place(evaluated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with data, models, config and outcomes table, which is also the current one."""
    folder = tmp_path / "place"
    shutil.copytree(evaluated, folder)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def run() -> Run:
    return invoke
