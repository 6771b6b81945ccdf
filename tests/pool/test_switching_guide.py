"""The guide to switching weights does what it says: its files, its commands, and each of its three ways."""

import asyncio
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="pip install 'rheostat[torch]'")
pytest.importorskip("safetensors", reason="pip install 'rheostat[torch]'")

from rheostat.router import Router

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "switching-weights.md").read_text()
ROW = {"a": 1.0, "b": -1.0}


def said(folder: Path, command: str) -> str:
    words = shlex.split(command)
    called = [sys.executable, "-m", "rheostat", *words[1:]] if words[0] == "rheostat" else [sys.executable, *words[1:]]
    return subprocess.run(called, cwd=folder, capture_output=True, text=True, check=True).stdout


def test_the_guide_runs_and_its_three_ways_lead_to_one_answer(tmp_path: Path) -> None:
    for name, body in re.findall(r"```(?:python|yaml) file=(\S+)\n(.*?)```", GUIDE, re.DOTALL):
        (tmp_path / name).write_text(body)
    commands = [line for block in re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL) for line in block.splitlines()]
    told = {command: said(tmp_path, command) for command in commands}
    assert "2 of 6 tensors differ" in told["rheostat delta make v1.safetensors v2.safetensors -o v1-to-v2.safetensors"]
    assert (tmp_path / "again.safetensors").stat().st_size == (tmp_path / "v2.safetensors").stat().st_size
    ways = re.findall(r"^\| [^|]+ \| `(weights: [^`]+)` \|", GUIDE, re.MULTILINE)
    assert len(ways) == 3
    first = (tmp_path / "rheostat.yaml").read_text()

    async def check() -> None:
        router = await Router.open(str(tmp_path / "rheostat.yaml"))
        before = (await router.apredict(ROW)).prediction
        for number, way in enumerate([*ways, "weights: weights/models/v2.json"], 2):
            for written in (first.replace("weights: v1.safetensors, version: v1", f"{way}, version: v{number}"), first):
                (tmp_path / "rheostat.yaml").write_text(written)
                assert await router.reload(), router.last_error
                served = await router.apredict(ROW)
                if written is first:
                    assert served.prediction == before
                else:
                    seen.append(served.prediction)
                    assert served.record.selected_version == f"v{number}"
        await router.aclose()

    seen: list[object] = []
    asyncio.run(check())
    assert len(seen) == 4
    assert all(each == seen[0] for each in seen)
