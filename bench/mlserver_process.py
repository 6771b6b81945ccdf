"""A real MLServer from an environment of its own, as its versions of libraries are not ours.

    python3 -m venv ~/.cache/rheostat/mlserver
    ~/.cache/rheostat/mlserver/bin/pip install --no-deps -r requirements/mlserver.txt

`$RHEOSTAT_MLSERVER` names another place. The models are those of `bench.triton`: `texts` and `numbers`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from bench.outage_process import Process, free_port

FOLDER = Path(os.environ.get("RHEOSTAT_MLSERVER", "~/.cache/rheostat/mlserver")).expanduser()
WANTED = "its pins are in requirements/mlserver.txt, for an environment in ~/.cache/rheostat/mlserver"
RUNTIMES = Path(__file__).with_name("mlserver_models")
_MODELS = {
    "texts": (
        [("TEXT", "BYTES", [-1, 1])],
        [("PROBS", "FP32", [-1, 2]), ("LOGITS", "FP32", [-1, 2]), ("LABEL", "BYTES", [-1, 1])],
    ),
    "numbers": ([("X", "FP32", [-1, 2])], [("P", "FP32", [-1, 2])]),
}


def installed() -> bool:
    """Return whether the server is there."""
    return (FOLDER / "bin/mlserver").exists()


def mlserver(folder: Path, port: int, grpc_port: int, sleep: Path) -> Process:
    """Return a server, not yet started; `folder` takes its files, `sleep` holds the seconds that `texts` sleeps a call."""
    if not installed():
        raise SystemExit(f"MLServer is not installed: {WANTED}")
    place = folder / "mlserver"
    place.mkdir()
    ports = {"http_port": port, "grpc_port": grpc_port, "metrics_port": free_port()}
    settings = {**ports, "host": "127.0.0.1", "parallel_workers": 0, "debug": False}
    (place / "settings.json").write_text(json.dumps(settings))
    for name, tensors in _MODELS.items():
        (place / name).mkdir()
        inputs, outputs = (
            [{"name": each, "datatype": datatype, "shape": shape} for each, datatype, shape in side] for side in tensors
        )
        model = {"name": name, "implementation": f"runtimes.{name.title()}", "inputs": inputs, "outputs": outputs}
        (place / name / "model-settings.json").write_text(json.dumps(model))
    environment = {**os.environ, "PYTHONPATH": str(RUNTIMES), "RHEOSTAT_SLEEP": str(sleep)}
    command = [str(FOLDER / "bin/mlserver"), "start", str(place)]
    return Process("mlserver", command, f"http://127.0.0.1:{port}/v2/models/texts/ready", folder, environment)
