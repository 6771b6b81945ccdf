"""The guide of local language models: its config, run with its commands on the model that it names."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

from gguf_models import FILE

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "local-language-models.md").read_text()


def test_the_guide_runs(tmp_path: Path) -> None:
    ((name, config),) = re.findall(r"```yaml file=(\S+)\n(.*?)```", GUIDE, re.DOTALL)
    (tmp_path / name).write_text(config)
    assert FILE is not None
    (tmp_path / "small.gguf").symlink_to(FILE)
    (commands,) = re.findall(r"```sh run\n(.*?)```", GUIDE, re.DOTALL)
    said = []
    for command in commands.strip().splitlines():
        program, *words = shlex.split(command)
        assert program == "rheostat"
        ran = subprocess.run(
            [sys.executable, "-m", "rheostat", *words], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        said.append(ran.stdout)
    assert "answer: 'negative'" in said[0]
    assert "scores: 'negative' 0." in said[0]
    assert "by writer" in said[1]
