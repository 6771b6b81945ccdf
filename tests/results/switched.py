"""A pool whose model is switched by a file beside it, for promises: in this process, over HTTP, in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from rheostat.gateway.handle import ServerHandle
from rheostat.results.later import Later
from rheostat.results.result import Result
from rheostat.router import Router
from tests.gateway.gateway_wire import Reply, ask, until

MODELS = """
from pathlib import Path

from rheostat.errors import ModelError

DOWN = Path(__file__).with_name("down")

def large(row):
    if DOWN.exists():
        raise RuntimeError("out of order")
    if row == "too hard":
        raise ModelError("input_refused", "host db.internal says no")
    return "yes", 0.9
"""


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the pauses between two tries of a promise."""
    for name, seconds in (("first_pause_s", 0.05), ("longest_pause_s", 0.2), ("look_s", 0.05)):
        monkeypatch.setitem(Later.__init__.__kwdefaults__, name, seconds)


class Switched:
    """A folder with a config, in which MODULE stands for the models' module. They work until `down` is called."""

    def __init__(self, folder: Path, config: str) -> None:
        module = f"switched_{folder.name}"
        self.folder = folder
        self.path = folder / "rheostat.yaml"
        self._down = folder / "down"
        (folder / f"{module}.py").write_text(MODELS)
        self.path.write_text(config.replace("MODULE", module))

    def up(self) -> None:
        self._down.unlink(missing_ok=True)

    def down(self) -> None:
        self._down.touch()

    @contextlib.asynccontextmanager
    async def router(self) -> AsyncIterator[Router]:
        router = await Router.open(str(self.path))
        try:
            yield router
        finally:
            await router.aclose()

    @contextlib.contextmanager
    def gateway(self) -> Iterator[ServerHandle]:
        """Serve in this process; the models are down once they have been checked."""
        with ServerHandle(str(self.path)) as handle:
            self.down()
            yield handle

    @contextlib.contextmanager
    def process(self, port: int) -> Iterator[str]:
        """Run `rheostat serve` in a process of its own, which is killed (SIGKILL) at the end."""
        url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "rheostat", "serve", str(self.path), "--port", str(port)]
        with (self.folder / "log").open("ab") as log:
            running = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log, env={**os.environ})
        try:
            until(lambda: _is_ready(url), 60.0)
            yield url
        finally:
            running.send_signal(signal.SIGKILL)
            running.wait()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def done(url: str, path: str, headers: dict[str, str] | None = None) -> Reply:
    """Wait until a promise is no longer pending; return what is there then."""
    found: list[Reply] = []

    def is_over() -> bool:
        found.append(ask(url, path, headers=headers))
        time.sleep(0.05)
        return found[-1].status != 202

    until(is_over)
    return found[-1]


async def ended(router: Router, key: str, tenant: str | None = None) -> Result:
    """Wait as `done` does, without HTTP."""
    async with asyncio.timeout(15.0):
        while (found := await router.result(key, tenant)).state == "pending":
            await asyncio.sleep(0.02)
    return found


def _is_ready(url: str) -> bool:
    try:
        return ask(url, "/health/ready").status == 200
    except OSError:
        time.sleep(0.05)
        return False
