"""The gateway's gRPC port: where it listens, what it lets in, how it stops."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

from rheostat.errors import MissingExtra
from rheostat.gateway.inference_service import InferenceService

if TYPE_CHECKING:
    from rheostat.gateway.inference_core import InferenceCore

IDLE_MS = 75_000
"""Milliseconds that a connection without a call stays open."""
PENDING = 20_000
"""Calls that may wait for the event loop. The library's own 1,000 would end some of a burst as CANCELLED, at random; who
waits and who leaves is for the limits to say, with a code and a time to come back."""
_FLUSH_S = 1.0
_IDENTITY = 1


class GrpcServer:
    """Serves the Open Inference Protocol v2 over gRPC, in the running event loop.

    Raises:
        MissingExtra: grpcio is not installed.
        OSError: the port is taken.
    """

    def __init__(self, core: InferenceCore, host: str, port: int) -> None:
        try:
            import grpc
            from grpc import aio
        except ImportError:
            raise MissingExtra("`server.grpc_port`", "grpc") from None
        self._service = InferenceService(core, grpc)
        self._server: Any = aio.server(
            options=(
                ("grpc.so_reuseport", 0),  # a port that is taken is an error, as it is for HTTP
                ("grpc.max_receive_message_length", core.router.config.server.max_body),
                ("grpc.max_send_message_length", -1),
                ("grpc.compression_enabled_algorithms_bitset", _IDENTITY),  # a small message is never a large one
                ("grpc.max_connection_idle_ms", IDLE_MS),
                ("grpc.server.max_pending_requests", PENDING),
                ("grpc.server.max_pending_requests_hard_limit", PENDING),
            )
        )
        self._server.add_generic_rpc_handlers((self._service.handlers(),))
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            self.port: int = self._server.add_insecure_port(address)
        except RuntimeError:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE), f"{host}:{port}") from None

    async def start(self) -> None:
        """Take calls from now on."""
        await self._server.start()

    async def stop(self) -> None:
        """Cut off the calls that still run, telling them that the gateway stops, and close the connections."""
        self._service.cut()
        await self._server.stop(_FLUSH_S)
