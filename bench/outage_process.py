"""A server as a process that can be killed, stopped, continued and started again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

READY_S = 30.0


class Process:
    """One server; its children share its fate.

    Args:
        name: of its log, `NAME.log` in `folder`.
        command: what is run.
        ready: the URL that answers 200 once it serves.
    """

    def __init__(
        self, name: str, command: Sequence[str], ready: str, folder: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.ready = ready
        self._command = list(command)
        self._environment = environment
        self._log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and return at once."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=self._environment,
                start_new_session=True,
            )

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it and its children."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def kill(self) -> None:
        """Kill it as `kill -9` does; harmless when it is gone."""
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    async def until_ready(self) -> None:
        """Wait until it serves.

        Raises:
            SystemExit: it ended, or did not serve within 30 seconds; shows the end of its log.
        """
        until = time.monotonic() + READY_S
        while time.monotonic() < until and self._process is not None and self._process.poll() is None:
            if await asyncio.to_thread(_answers, self.ready):
                return
            await asyncio.sleep(0.05)
        raise SystemExit(f"{self.name} did not start:\n{self._log.read_text()[-2000:]}")


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1.0) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
    return port


def gateway(folder: Path, config: str) -> tuple[Process, str]:
    """Return the gateway's process, not yet started, and its URL."""
    (folder / "rheostat.yaml").write_text(config)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "rheostat", "serve", str(folder / "rheostat.yaml"), "--port", str(port)]
    return Process("gateway", command, f"{url}/health/ready", folder), url
