"""The gateway under test: a process of its own, as an operator starts it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import yaml

from rheostat.testing.cases.client import Answer, Sending, exchange

_SERVING = re.compile(r"serving on http://127\.0\.0\.1:(\d+)")
_ADMIN = re.compile(r"admin pages on http://127\.0\.0\.1:(\d+)")
_START_S = 60.0
_STOP_S = 15.0


class GatewayProcess:
    """`rheostat serve` over a config in `folder`; everything it prints is kept.

    `refused` is True when it ended before it served.
    """

    def __init__(self, folder: Path, secret: str) -> None:
        self.folder = folder
        self.port = 0
        self.admin_port = 0
        self.refused = False
        self.output = ""
        self._secret = secret
        self._config = folder / "rheostat.yaml"
        self._process: asyncio.subprocess.Process | None = None
        self._listening: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()

    def write(self, config: Any) -> None:
        """Write the config file: a mapping as YAML, a text as it is."""
        text = config if isinstance(config, str) else yaml.safe_dump(config, allow_unicode=True, sort_keys=False)
        self._config.write_text(text, encoding="utf-8")

    async def start(self) -> None:
        """Start it and wait until it serves, or has refused to.

        Raises:
            RuntimeError: it does neither.
        """
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "rheostat", "serve", str(self._config), "--port", "0", "--log-form", "json",
            cwd=self.folder, env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, limit=1 << 22,
        )  # fmt: skip
        self._listening = asyncio.create_task(self._listen(self._process))
        try:
            async with asyncio.timeout(_START_S):
                await self._ready.wait()
        except TimeoutError:
            await self.stop()
            raise RuntimeError(f"the gateway did not start within {_START_S:g} s: {self.output[-2_000:]}") from None

    async def stop(self) -> None:
        """Stop it as an operator does, and wait for its end; its route log is whole then."""
        process = self._process
        if process is None or self._listening is None:
            return
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(_STOP_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
            self.output += "\nkilled: it did not stop in time"
        await self._listening

    async def metrics(self) -> str:
        """Return the metrics page."""
        return await self._page(self.port, "/metrics", {})

    async def status(self) -> dict[str, Any]:
        """Return the status page."""
        page = await self._page(self.admin_port, "/admin/status", {"authorization": f"Bearer {self._secret}"})
        status: dict[str, Any] = json.loads(page)
        return status

    async def contract(self) -> dict[str, Any]:
        """Return the contract that the gateway publishes."""
        contract: dict[str, Any] = json.loads(await self._page(self.port, "/openapi.json", {}))
        return contract

    async def shown_config(self) -> str:
        """Return the page that shows the config."""
        return await self._page(self.admin_port, "/admin/config", {"authorization": f"Bearer {self._secret}"})

    def log(self) -> str:
        """Return the route log."""
        path = self.folder / "records.jsonl"
        return path.read_text(encoding="utf-8", errors="surrogateescape") if path.exists() else ""

    async def _page(self, port: int, path: str, headers: dict[str, str]) -> str:
        answer = Answer(-1)
        await exchange(port, Sending("GET", path, headers), answer)
        if answer.status != 200:
            raise RuntimeError(f"the page {path} cannot be had: {answer.shown}")
        return answer.body.decode()

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            text = line.decode("utf-8", "replace")
            self.output += text
            if found := _SERVING.search(text):
                self.port = int(found[1])
            if found := _ADMIN.search(text):
                self.admin_port = int(found[1])
            if self.port and self.admin_port:
                self._ready.set()
        self.refused = not self._ready.is_set()
        self._ready.set()
