"""A worker process's side of the talk: one call after the other until the gateway hangs up."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from rheostat.errors import ModelError
from rheostat.pool.backend import Backend
from rheostat.pool.worker.message import HEAD, Reader, Writer

_HEAVY = 0.9


class Line:
    """The socket to the gateway, read and written in whole messages."""

    def __init__(self, to_gateway: socket.socket) -> None:
        self._socket = to_gateway
        self._head = bytearray(HEAD.size)

    def receive(self) -> tuple[int, bytearray] | None:
        """Return the flags and the body of the next message; None when the gateway has hung up."""
        if not self._fill(memoryview(self._head)):
            return None
        length, flags = HEAD.unpack(self._head)
        body = bytearray(length)
        return (flags, body) if self._fill(memoryview(body)) else None

    def send(self, message: bytes) -> None:
        """Send one message; a gateway that has gone is found out by the next `receive`."""
        try:
            self._socket.sendall(message)
        except (BrokenPipeError, ConnectionResetError):
            return

    def _fill(self, room: memoryview) -> bool:
        while room:
            try:
                count = self._socket.recv_into(room)
            except ConnectionResetError:
                return False
            if count == 0:
                return False
            room = room[count:]
        return True


def serve(line: Line, backend: Backend, reader: Reader, writer: Writer, ceiling: int, held: Callable[[], int]) -> None:
    """Answer calls until the gateway hangs up. `ceiling` bytes are the most that it may hold (0: any number)."""
    while (message := line.receive()) is not None:
        answer = _answer(backend, reader, *message)
        heavy = ceiling > 0 and held() > _HEAVY * ceiling
        line.send(writer.failure(answer, heavy) if isinstance(answer, ModelError) else writer.replies(answer, heavy))


def _answer(backend: Backend, reader: Reader, flags: int, body: bytearray) -> list[Any] | ModelError:
    try:
        return list(backend.predict(reader.rows(flags, body)))
    except ModelError as error:
        return error
    except MemoryError:
        return ModelError("crashed", "MemoryError: the process may not take more memory")
    except BaseException as error:  # whatever a model raises is this call's failure only
        return ModelError("crashed", f"{type(error).__name__}: {error}")
