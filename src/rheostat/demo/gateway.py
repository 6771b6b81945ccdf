"""The real gateway in a process of its own, exactly as `rheostat serve` starts it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rheostat.errors import RheostatError

_PATIENCE_S = 60.0
_STOP_S = 15.0
_ADDRESS = re.compile(r"serving on (http://\S+:\d+)")


class GatewayError(RheostatError):
    """The gateway's process did not come up, or ended; the message shows the end of its log."""

    type = "gateway_error"


@contextmanager
def serving(config: Path, log: Path) -> Iterator[str]:
    """Run `rheostat serve` on a free port for the time of a `with` block; yields where it answers.

    Args:
        log: where its log goes; what was there is written over.

    Raises:
        GatewayError: it does not serve.
    """
    command = [sys.executable, "-m", "rheostat", "serve", str(config), "--port", "0", "--no-watch", "--log-form", "plain"]
    with log.open("wb") as file, _ending_well():
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT)
        try:
            yield _address(process, log)
        finally:
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        ended = process.poll() is not None
        said = log.read_text(encoding="utf-8", errors="replace")
        if found := _ADDRESS.search(said):
            return found[1]
        if ended:
            last = "\n".join(f"  {line}" for line in said.splitlines()[-8:])
            raise GatewayError(f"the gateway ended before it served (exit code {process.returncode}):\n{last}")
        time.sleep(0.02)
    raise GatewayError(f"the gateway did not serve within {_PATIENCE_S:.0f} seconds; its log is {log}")


@contextmanager
def _ending_well() -> Iterator[None]:
    """Make SIGTERM unwind the stack, so that the gateway does not outlive the demo."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, _: Any) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
