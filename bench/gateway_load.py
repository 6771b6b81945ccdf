"""The two ends of the gateway's bench: a bare echo to compare with, and clients that count what comes back.

    python -m bench.gateway_load echo
    python -m bench.gateway_load client URL CLIENTS REQUESTS

Both run in processes of their own, so that the server's CPU time is the server's alone.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

WORDS = ("the", "film", "was", "a", "delight", "and", "I", "would", "gladly", "see", "it", "again", "with", "friends")


def text_of(number: int) -> str:
    """Return a text that no other request has; every fourth one makes the fast model doubt."""
    return f"#{number} {' '.join(WORDS[: 6 + number % 9])}{'?' if number % 4 == 0 else ''}"


def body_of(number: int) -> bytes:
    """Return the request body for a text."""
    return json.dumps({"data": text_of(number), "meta": {"risk_level": "low"}}, separators=(",", ":")).encode()


async def echo_app(scope: Any, receive: Any, send: Any) -> None:
    """Hand the body back; `/cpu` says how much CPU time this process has used."""
    message = await receive()
    body = message["body"] if scope["path"] != "/cpu" else str(time.process_time()).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def serve_echo() -> None:
    """Serve `echo_app` as the gateway is served: uvicorn, uvloop, httptools, no access log."""
    import uvicorn

    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(f"serving on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(
        echo_app, loop="uvloop", http="httptools", ws="none", lifespan="off", access_log=False, log_level="error"
    )
    uvicorn.Server(config).run([listener])


class Client(asyncio.Protocol):
    """One keep-alive connection that sends the next request when the last one is answered.

    `wrong` gets what is not an answer to the request that was sent: another status, or somebody else's text.
    """

    def __init__(
        self, host: str, numbers: Iterator[int], latencies: array[float], wrong: list[str], ended: Callable[[], None]
    ) -> None:
        self.head = (
            f"POST /v1/predict HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: ".encode()
        )
        self.numbers, self.latencies, self.wrong, self.ended = numbers, latencies, wrong, ended
        self.transport: asyncio.Transport | None = None
        self.got = b""
        self.number = -1
        self.sent = 0.0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.next()

    def next(self) -> None:
        """Send the next request, or close when there is none."""
        assert self.transport is not None
        self.number = next(self.numbers, -1)
        if self.number < 0:
            self.transport.close()
            return
        body = body_of(self.number)
        self.sent = time.perf_counter()
        self.transport.write(b"%s%d\r\n\r\n%s" % (self.head, len(body), body))

    def data_received(self, data: bytes) -> None:
        self.got += data
        end = self.got.find(b"\r\n\r\n")
        if end < 0:
            return
        start = self.got.index(b"content-length: ") + 16
        whole = end + 4 + int(self.got[start : self.got.index(b"\r\n", start)])
        if len(self.got) < whole:
            return
        self.latencies.append(time.perf_counter() - self.sent)
        if (
            not self.got.startswith(b"HTTP/1.1 200 ")
            or b'"%s"' % text_of(self.number).encode() not in self.got
            or len(self.got) > whole
        ):
            self.wrong.append(self.got[:300].decode("utf-8", "replace"))
        self.got = b""
        self.next()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.number >= 0:
            self.wrong.append(f"request {self.number} was never answered: {exc}")
        self.ended()


async def drive(url: str, clients: int, requests: int) -> dict[str, Any]:
    """Send `requests` requests over `clients` connections; return counts, seconds and latencies in milliseconds."""
    at = urlsplit(url)
    host, port = at.hostname or "127.0.0.1", at.port or 80
    loop = asyncio.get_running_loop()
    latencies: array[float] = array("d")
    wrong: list[str] = []
    numbers = iter(range(requests))
    left = clients
    done = loop.create_future()

    def ended() -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set_result(None)

    began = time.perf_counter()
    for _ in range(clients):
        await loop.create_connection(lambda: Client(at.netloc, numbers, latencies, wrong, ended), host, port)
    await done
    seconds = time.perf_counter() - began
    ordered = sorted(latencies)
    return {
        "requests": len(ordered),
        "seconds": seconds,
        "p50_ms": ordered[len(ordered) // 2] * 1e3 if ordered else None,
        "p99_ms": ordered[len(ordered) * 99 // 100] * 1e3 if ordered else None,
        "wrong": len(wrong),
        "first_wrong": wrong[:3],
    }


def main() -> None:
    """Be the end that the first argument names."""
    if sys.argv[1:] == ["echo"]:
        serve_echo()
        return
    import uvloop

    _, _, url, clients, requests = sys.argv
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(drive(url, int(clients), int(requests)))))


if __name__ == "__main__":
    main()
