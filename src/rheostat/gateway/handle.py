"""A gateway in a background thread, for tests, notebooks and the demo."""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType

from rheostat.gateway.server import GatewayServer, serving
from rheostat.router import Router


class ServerHandle:
    """Serves a config on a free port from its own thread until `stop`; use it as a context manager.

    Args:
        config_path: the config.
        host, port, admin_port: where to listen; port 0 takes a free one.

    Raises (from `start`):
        ConfigError, OSError: it cannot serve.
    """

    def __init__(self, config_path: str, *, host: str = "127.0.0.1", port: int = 0, admin_port: int = 0) -> None:
        self.config_path = config_path
        self._host, self._port, self._admin_port = host, port, admin_port
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: GatewayServer | None = None
        self._stopped: asyncio.Event | None = None

    def __enter__(self) -> ServerHandle:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Where the gateway answers, without a slash at the end."""
        return f"http://{self._host}:{self.server.port}"

    @property
    def admin_url(self) -> str | None:
        """Where the admin pages answer; None when they are closed."""
        port = self.server.admin_port
        return f"http://127.0.0.1:{port}" if port is not None else None

    @property
    def server(self) -> GatewayServer:
        """The server inside; its methods belong to its own thread."""
        if self._server is None:
            raise RuntimeError("the gateway is not started")
        return self._server

    def start(self) -> None:
        """Start, and return when requests are taken."""
        self._thread = threading.Thread(target=self._run, name="rheostat-gateway", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            self._thread.join()
            raise self._error

    def stop(self, timeout_s: float = 30.0) -> None:
        """Stop in order, and wait for the end."""
        if self._thread is None or self._loop is None or self._stopped is None:
            return
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        import uvloop

        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve())
        except BaseException as error:
            self._error = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        router = await Router.open(self.config_path)
        async with serving(router, host=self._host, port=self._port, admin_port=self._admin_port) as server:
            self._server = server
            self._ready.set()
            await self._stopped.wait()
