"""The commands and the code of the guide on experiments run as they are written."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.conftest import Run

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "experiments.md").read_text(encoding="utf-8")


@pytest.mark.usefixtures("place")
def test_the_guide_runs(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    run(["tune", "outcomes.parquet", "--goal", "max-share=0.9", "--mean-only"])
    commands, code, check = (body for _, body in re.findall(r"```(python run)?\n(.*?)```", GUIDE, re.DOTALL))
    (written,) = re.findall(r"rheostat (experiment .*)", commands.replace("\\\n", " "))
    arguments = shlex.split(written.replace("--group country --cluster user", ""))  # the sentences belong to nobody
    told = run(arguments).stdout
    assert "against small" in told
    assert Path("experiment.html").read_text(encoding="utf-8").count("<h2>") >= 6
    exec(compile(code, "experiments.md", "exec"), {})
    assert "on accuracy" in capsys.readouterr().out
    run(["predict", "rheostat.yaml", "Strings are immutable."])
    assert "1 equal" in run(shlex.split(check)[1:]).stdout
