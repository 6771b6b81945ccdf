"""A real Triton Inference Server from the wheel `nvidia-pytriton`, without the wheel's own Python layer.

    pip install --no-deps --target ~/.cache/rheostat/triton -r requirements/triton.txt

A folder of its own, because its Python backend reads wrong numbers with NumPy 2; `$RHEOSTAT_TRITON` names another.
The models are in `bench/triton_models`: `texts` reads a text (`TEXT`) and gives `PROBS`, `LOGITS` and `LABEL`; `numbers`
reads two numbers (`X`) and gives `P`.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path

from bench.outage_process import Process

FOLDER = Path(os.environ.get("RHEOSTAT_TRITON", "~/.cache/rheostat/triton")).expanduser()
WANTED = "pip install --no-deps --target ~/.cache/rheostat/triton -r requirements/triton.txt"
MODELS = Path(__file__).with_name("triton_models")
_SERVER = FOLDER / "pytriton/tritonserver"
_STUB = _SERVER / f"python_backend_stubs/{sys.version_info.major}.{sys.version_info.minor}/triton_python_backend_stub"


def installed() -> bool:
    """Return whether the server, with a stub for this Python, is there."""
    return (_SERVER / "bin/tritonserver").exists() and _STUB.exists()


def triton(folder: Path, port: int, sleep: Path, grpc_port: int | None = None, load: str = "*") -> Process:
    """Return a server, not yet started; `folder` takes its files, `sleep` holds the seconds that `texts` sleeps a batch.

    It speaks gRPC with a `grpc_port`, and loads all models when it starts, or only the one named by `load` ("" for none).
    """
    if not installed():
        raise SystemExit(f"Triton is not installed: {WANTED}")
    place = folder / "triton"
    shutil.copytree(MODELS, place / "models", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(_SERVER / "backends/python", place / "backends/python")
    shutil.copy(_STUB, place / "backends/python")
    libraries = [str(FOLDER / "nvidia_pytriton.libs"), str(sysconfig.get_config_var("LIBDIR"))]
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": ":".join(libraries),
        "PYTHONHOME": sys.base_prefix,
        "RHEOSTAT_SITE": str(FOLDER),
        "RHEOSTAT_SLEEP": str(sleep),
    }
    command = [
        str(_SERVER / "bin/tritonserver"), f"--model-repository={place / 'models'}",
        f"--backend-directory={place / 'backends'}", f"--backend-config=python,shm-region-prefix-name={shared_memory(port)}",
        "--model-control-mode=explicit", *([f"--load-model={load}"] if load else []),
        "--http-address=127.0.0.1", f"--http-port={port}",
        *(["--allow-grpc=false"] if grpc_port is None else ["--grpc-address=127.0.0.1", f"--grpc-port={grpc_port}"]),
        "--allow-metrics=false", "--log-info=false",
    ]  # fmt: skip
    return Process("triton", command, f"http://127.0.0.1:{port}/v2/health/ready", folder, environment)


def shared_memory(port: int) -> str:
    """Return how the names of its shared memory begin."""
    return f"rheostat{port}_"


def sweep(port: int) -> None:
    """Remove the shared memory that a killed server left behind."""
    for left in Path("/dev/shm").glob(f"{shared_memory(port)}*"):
        left.unlink(missing_ok=True)
