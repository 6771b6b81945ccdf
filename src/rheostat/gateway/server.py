"""The gateway as a process: sockets, signals, reloads, and an orderly stop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import uvicorn

from rheostat.errors import MissingExtra
from rheostat.gateway.admin import MIN_SECRET, AdminApp, is_open
from rheostat.gateway.app import Gateway
from rheostat.gateway.grpc_server import GrpcServer
from rheostat.gateway.protocol import NOTHING, Direct, guarded
from rheostat.pool.threads import threads_told

if TYPE_CHECKING:
    from rheostat.config.load import Loaded
    from rheostat.config.schema import ServerSettings
    from rheostat.errors import ConfigError
    from rheostat.router import Router
    from rheostat.telemetry import Masker

KEEP_ALIVE_S = 75
"""Seconds that a connection without a request stays open."""
BACKLOG = 2048
GC_THRESHOLDS = (20_000, 20, 20)
"""A request makes some fifty small objects that die with it; Python's default of 700 would look for cycles every few."""
_FLUSH_S = 1
_log = logging.getLogger("rheostat.gateway")


class _Server(uvicorn.Server):
    """uvicorn without its own signal handling: the gateway stops it when its requests have ended."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class GatewayServer:
    """A router's gateway, and its gRPC port and admin pages if the config opens them, on their sockets.

    Args:
        router: what is served.
        host, port: where; default as configured. Port 0 takes a free one.
        admin_port: the same for the admin pages.
    """

    def __init__(
        self, router: Router, *, host: str | None = None, port: int | None = None, admin_port: int | None = None
    ) -> None:
        config = router.config
        self.router = router
        self.gateway = Gateway(router)
        self._stop = asyncio.Event()
        self._cut = asyncio.Event()
        self._socket = _listen(host or config.server.host, config.server.port if port is None else port)
        self.port: int = self._socket.getsockname()[1]
        self._main = self._server(self.gateway, self.gateway.direct)
        self._admin: _Server | None = None
        self._admin_socket: socket.socket | None = None
        self.admin_port: int | None = None
        if is_open(config):
            wanted = config.admin.port if admin_port is None else admin_port
            try:
                self._admin_socket = _listen(config.admin.host, wanted)
            except OSError:
                self._socket.close()
                raise
            self.admin_port = self._admin_socket.getsockname()[1]
            self._admin = self._server(AdminApp(router))
        self._grpc: GrpcServer | None = None
        if config.server.grpc_port is not None:
            try:
                self._grpc = GrpcServer(self.gateway.inference.core, host or config.server.host, config.server.grpc_port)
            except (MissingExtra, OSError):
                for taken in (self._socket, self._admin_socket):
                    if taken is not None:
                        taken.close()
                raise
        self.grpc_port: int | None = self._grpc.port if self._grpc is not None else None

    def stop(self) -> None:
        """Stop in order: readiness goes bad at once, requests in flight finish within `server.drain`."""
        self.gateway.drain()
        self._stop.set()

    def cut(self) -> None:
        """Stop without waiting for requests in flight."""
        self.stop()
        self._cut.set()

    async def serve(self, ready: asyncio.Event | None = None) -> None:
        """Serve until `stop`; sets `ready` when requests are taken. Ends within `server.drain` plus about a second."""
        tasks = [asyncio.create_task(self._main.serve([self._socket]))]
        if self._admin is not None and self._admin_socket is not None:
            tasks.append(asyncio.create_task(self._admin.serve([self._admin_socket])))
        servers = [server for server in (self._main, self._admin) if server is not None]
        try:
            while not all(server.started for server in servers):
                for task in tasks:
                    if task.done():
                        task.result()
                await asyncio.sleep(0.005)
            if self._grpc is not None:
                await self._grpc.start()
            self._tell()
            if ready is not None:
                ready.set()
            await self._stop.wait()
            await self._drained()
        finally:
            self.gateway.drain()
            for server in servers:
                server.should_exit = True
            if self._grpc is not None:
                tasks.append(asyncio.create_task(self._grpc.stop()))
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _drained(self) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + float(self.router.config.server.drain)
        while self.gateway.active and loop.time() < until and not self._cut.is_set():
            await asyncio.sleep(0.02)
        if self.gateway.active:
            _log.warning("the time to drain is over, %d requests are cut off", self.gateway.active)

    def _limits(self) -> ServerSettings:
        return self.router.config.server

    def _server(self, app: Any, direct: Mapping[bytes, Direct] = NOTHING) -> _Server:
        config = uvicorn.Config(
            app, loop="uvloop", http=guarded(self._limits, direct), ws="none", lifespan="off", interface="asgi3",
            access_log=False, log_config=None, log_level="error", proxy_headers=False, server_header=False, backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_S, timeout_graceful_shutdown=_FLUSH_S,
        )  # fmt: skip
        return _Server(config)

    def _tell(self) -> None:
        _log.info("%s", threads_told(self.router.plan.pool.models))
        host = self._socket.getsockname()[0]
        _log.info("serving on http://%s:%d", host, self.port)
        if self.grpc_port is not None:
            _log.info("serving the inference protocol on grpc://%s:%d", host, self.grpc_port)
        if self.admin_port is not None:
            _log.info("admin pages on http://%s:%d, with the secret only", self.router.config.admin.host, self.admin_port)
        else:
            _log.info("admin pages are closed: admin.secret with at least %d characters opens them", MIN_SECRET)


def _listen(host: str, port: int) -> socket.socket:
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, error.strerror, f"{host}:{port}") from None
    return listener


@contextlib.asynccontextmanager
async def serving(
    router: Router, *, host: str | None = None, port: int | None = None, admin_port: int | None = None
) -> AsyncIterator[GatewayServer]:
    """Serve `router` for the time of a `with` block, in the running event loop; the router is closed at its end."""
    try:
        server = GatewayServer(router, host=host, port=port, admin_port=admin_port)
    except (MissingExtra, OSError):
        await router.aclose()
        raise
    ready = asyncio.Event()
    task = asyncio.create_task(server.serve(ready))
    waiting = asyncio.create_task(ready.wait())
    try:
        await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        yield server
    finally:
        waiting.cancel()
        server.stop()
        await task
        await router.aclose()


async def run(
    config_path: str,
    *,
    host: str | None = None,
    port: int | None = None,
    admin_port: int | None = None,
    watch: bool = True,
    masker: Masker | None = None,
) -> None:
    """Serve the config at `config_path` until SIGTERM or SIGINT; SIGHUP, and a change of the file, reload it.
    A second SIGTERM or SIGINT does not wait for requests in flight. `masker` is told the secrets of every config.

    Raises:
        ConfigError: the file is wrong; every mistake is named.
        OSError: a port is taken.
        MissingExtra: gRPC is asked for and not installed.
    """
    from rheostat.router import Router

    _log.info("opening and checking the models of %s", config_path)
    router = await Router.open(config_path, masker=masker)
    gc.freeze()  # what was loaded so far stays; looking through it again and again is work for nothing
    gc.set_threshold(*GC_THRESHOLDS)
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    reloads: set[asyncio.Task[Any]] = set()
    servers: list[GatewayServer] = []

    def stop() -> None:
        for server in servers:
            if stopped.is_set():
                server.cut()
            server.stop()
        stopped.set()

    def reload() -> None:
        task = asyncio.create_task(router.reload())
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    for number in (signal.SIGTERM, signal.SIGINT):  # before the first request can come, so that a stop is always orderly
        loop.add_signal_handler(number, stop)
    loop.add_signal_handler(signal.SIGHUP, reload)
    async with serving(router, host=host, port=port, admin_port=admin_port) as server:
        servers.append(server)
        watcher = asyncio.create_task(_watch(config_path, router)) if watch else None
        try:
            await stopped.wait()
        finally:
            if watcher is not None:
                watcher.cancel()


async def _watch(config_path: str, router: Router) -> None:
    from rheostat.config.watch import watch

    async def take_up(source: Loaded | ConfigError) -> None:
        try:
            await router.reload(source)
        except Exception:  # watching goes on, whatever one file did
            _log.exception("the config could not be taken up")

    await watch(config_path, take_up, since=router.file_version)  # a change made while the models loaded is not lost
