"""The guide to model servers: its configs load, its gateway is started, and its clients are run against it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rheostat.backends.inference import InferenceModel
from rheostat.config import load_config
from rheostat.gateway.handle import ServerHandle

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "model-servers.md").read_text()
CLIENT = Path(os.environ.get("RHEOSTAT_TRITONCLIENT", "~/.cache/rheostat/tritonclient")).expanduser()


def test_its_configs_load(tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="gRPC is not installed: pip install 'rheostat[grpc]'")
    blocks = re.findall(r"```yaml servers\n(.*?)```", GUIDE, re.DOTALL)
    assert len(blocks) == 2
    (tmp_path / "churn.txt").write_text("stays\ngoes\n")
    for block in blocks:
        (tmp_path / "rheostat.yaml").write_text(block)
        for model in load_config(str(tmp_path / "rheostat.yaml")).config.models.values():
            model.open(str(tmp_path))


def test_its_table_names_settings() -> None:
    names = [name for row in re.findall(r"^\| (`.*?) \|", GUIDE, re.MULTILINE) for name in re.findall(r"`(\w+)", row)]
    assert len(names) > 8
    assert set(names) <= set(InferenceModel.__struct_fields__)


def test_its_gateway_answers_its_clients(tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="gRPC is not installed: pip install 'rheostat[grpc]'")
    if not shutil.which("curl"):
        pytest.skip("curl is not installed")
    for name, body in re.findall(r"```\w+ file=(\S+)\n(.*?)```", GUIDE, re.DOTALL):
        (tmp_path / name).write_text(body.replace("port: 8080, grpc_port: 8081", "port: 0, grpc_port: 0"))
    with ServerHandle(str(tmp_path / "rheostat.yaml")) as handle:
        said = []
        for block in re.findall(r"```bash ask\n(.*?)```", GUIDE, re.DOTALL):
            command = ["bash", "-ec", block.replace("http://127.0.0.1:8080", handle.url)]
            said.append(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        assert '"platform":"rheostat"' in said[0]
        assert said[0].endswith('{"ready":true}')
        answer = json.loads(said[1])
        shown = json.loads(re.findall(r"```json\n(.*?)```", GUIDE, re.DOTALL)[0])
        assert answer["outputs"] == shown["outputs"]
        assert answer.keys() == shown.keys()
        if not CLIENT.is_dir():
            pytest.skip("tritonclient is not installed: see requirements/tritonclient.txt")
        script = (tmp_path / "ask.py").read_text().replace(":8081", f":{handle.server.grpc_port}")
        environment = {**os.environ, "PYTHONPATH": str(CLIENT)}
        ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, env=environment)
        assert ran.returncode == 0, ran.stderr
        assert f"prints `{ran.stdout.strip()}`" in GUIDE
