"""A plain HTTP client for the tests: one request over one connection, or raw bytes."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import urlsplit


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = self.json["error"]
        return error


def ask(
    url: str, path: str = "/v1/predict", body: Any = None, headers: dict[str, str] | None = None, method: str = ""
) -> Reply:
    """Send one request; a body that is not bytes goes as JSON."""
    at = urlsplit(url)
    connection = http.client.HTTPConnection(at.hostname or "", at.port, timeout=20)
    try:
        given = {"content-type": "application/json"} if body is not None else {}
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection.request(method or ("POST" if body is not None else "GET"), path, data, {**given, **(headers or {})})
        response = connection.getresponse()
        return Reply(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
    finally:
        connection.close()


def dial(url: str, timeout_s: float = 10.0) -> socket.socket:
    """Open a bare connection."""
    at = urlsplit(url)
    return socket.create_connection((at.hostname, at.port), timeout=timeout_s)


def read_all(connection: socket.socket) -> bytes:
    """Read until the other side closes."""
    parts = []
    try:
        while part := connection.recv(65_536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def raw(url: str, *parts: bytes) -> bytes:
    """Send bytes as they are and return everything until the server closes."""
    with dial(url) as connection:
        for part in parts:
            connection.sendall(part)
        return read_all(connection)


def until(wanted: Callable[[], bool], within_s: float = 15.0) -> None:
    """Wait until something holds."""
    end = time.monotonic() + within_s
    while not wanted():
        assert time.monotonic() < end, "it never came to hold"
        time.sleep(0.01)
