"""What a conversation costs on its way through the gateway: CPU microseconds a request, beside a bare aiohttp proxy.

    python -m bench.chat        # 16 clients, alternating rounds: a 1 kB conversation, whole, and streamed in 100 chunks

The upstream answers at once, in a process of its own, and so do the clients; CPU time is that of the proxy's process, all
its threads, with the writing of records. The gateway decides by rules in front of a model with a peer, with records to JSON
lines and SQLite, metrics and breakers on. The proxy hands body and answer on and reads neither.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.gateway import SERVE, Server

CHUNKS = 100
CONFIG = """
task: chat
models:
  small: {{backend: chat, base_url: "{url}/v1", model: small, peers: [large]}}
  large: {{backend: chat, base_url: "{url}/v1", model: large}}
routes:
  default:
    policy:
      chain:
        - rules:
            - {{name: tools, when: "data.tools", use: large}}
            - {{name: long text, when: "text.size() > 2000", use: large}}
        - small
records: {{jsonl: records.jsonl, sqlite: records.db}}
"""
_SAID = "The refund is on its way and should be there within five days. " * 6
_WHOLE = {
    "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "small",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": _SAID}, "logprobs": None, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 210, "completion_tokens": 80, "total_tokens": 290},
}  # fmt: skip


def question(*, stream: bool) -> bytes:
    """Return the body of a conversation of 1 kB."""
    turns = [
        {"role": "system", "content": "You answer for a shop. " * 10},
        {"role": "user", "content": "Where is the parcel that I sent back two weeks ago? " * 5},
        {"role": "assistant", "content": "It has arrived, and the refund is being checked. " * 4},
        {"role": "user", "content": "And when will I have my money?"},
    ]
    return json.dumps({"model": "default", "messages": turns, "temperature": 0.2, "stream": stream}).encode()


def chunks() -> list[bytes]:
    """Return the events of a streamed answer."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "small"}
    deltas: list[tuple[dict[str, Any], str | None]] = [({"role": "assistant", "content": ""}, None)]
    deltas += [({"content": f"word{number} "}, None) for number in range(CHUNKS - 2)] + [({}, "stop")]
    choices = [[{"index": 0, "delta": delta, "finish_reason": finish}] for delta, finish in deltas]
    events = [b"data: %b\n\n" % json.dumps({**head, "choices": choice}).encode() for choice in choices]
    return [*events, b"data: [DONE]\n\n"]


class Upstream(asyncio.Protocol):
    """Answers each request at once."""

    whole = json.dumps(_WHOLE).encode()
    answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(whole), whole)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    parts = [b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks()]  # noqa: RUF012 - never changed

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.got = b""

    def data_received(self, data: bytes) -> None:
        self.got += data
        end = self.got.find(b"\r\n\r\n") + 4
        if end < 4:
            return
        if self.got.startswith(b"GET "):  # how proxies ask whether it is there
            self.got = b""
            self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}")
            return
        at = self.got.lower().find(b"content-length: ", 0, end) + 16
        whole = (
            self.got.endswith(b"\r\n0\r\n\r\n")
            if at < 16
            else len(self.got) >= end + int(self.got[at:].split(b"\r\n", 1)[0])
        )
        if not whole:
            return
        streamed, self.got = b'"stream":true' in self.got.replace(b": ", b":"), b""
        if streamed:
            self.transport.write(self.head)
            asyncio.get_running_loop().call_soon(self.send, 0)
        else:
            self.transport.write(self.answer)

    def send(self, number: int) -> None:
        """Write one chunk, and leave the next to the next turn of the loop."""
        if number < len(self.parts):
            self.transport.write(self.parts[number])
            asyncio.get_running_loop().call_soon(self.send, number + 1)
        else:
            self.transport.write(b"0\r\n\r\n")


async def upstream() -> None:
    """Serve `Upstream`."""
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", 0)
    print(f"serving on http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


async def proxy(url: str) -> None:
    """Hand on what comes, with aiohttp on both sides."""
    from aiohttp import ClientSession, DummyCookieJar, TCPConnector, web

    session = ClientSession(connector=TCPConnector(limit=0), cookie_jar=DummyCookieJar())

    async def relay(request: web.Request) -> web.StreamResponse:
        headers = {"content-type": "application/json"}
        async with session.post(f"{url}{request.path}", data=await request.read(), headers=headers) as reply:
            if not reply.content_type.startswith("text/event-stream"):
                return web.Response(body=await reply.read(), content_type="application/json")
            response = web.StreamResponse(headers={"content-type": "text/event-stream"})
            await response.prepare(request)
            async for part in reply.content.iter_any():
                await response.write(part)
            await response.write_eof()
            return response

    async def cpu(_: web.Request) -> web.Response:
        return web.Response(text=str(time.process_time()))

    app = web.Application()
    app.add_routes([web.post("/v1/chat/completions", relay), web.get("/cpu", cpu)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    await web.SockSite(runner, listener).start()
    print(f"serving on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    await asyncio.Event().wait()


async def clients(url: str, count: int, requests: int, *, stream: bool) -> dict[str, Any]:
    """Send `requests` conversations over `count` connections; return how many, latencies and what was no answer."""
    at = urlsplit(url)
    body = question(stream=stream)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {at.netloc}\r\nContent-Type: application/json\r\n"
    sent = head.encode() + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    left, latencies, wrong = iter(range(requests)), [], 0

    async def one() -> None:
        nonlocal wrong
        reader, writer = await asyncio.open_connection(at.hostname, at.port)
        for _ in left:
            began = time.perf_counter()
            writer.write(sent)
            head = await reader.readuntil(b"\r\n\r\n")
            low = head.lower()
            if b"content-length: " in low:
                said = await reader.readexactly(int(low.partition(b"content-length: ")[2].partition(b"\r\n")[0]))
            else:
                said = await reader.readuntil(b"\r\n0\r\n\r\n")
            latencies.append(time.perf_counter() - began)
            wrong += not head.startswith(b"HTTP/1.1 200 ") or (b"[DONE]" if stream else b"refund") not in said
        writer.close()

    await asyncio.gather(*(one() for _ in range(count)))
    ordered = sorted(latencies)
    return {"requests": len(ordered), "p50_ms": ordered[len(ordered) // 2] * 1e3, "wrong": wrong}


def load(server: Server, count: int, requests: int, *, stream: bool) -> tuple[float, float, int]:
    """Load a server; return CPU microseconds a request, P50 in milliseconds, and what was no answer."""
    before = server.cpu_s()
    command = [sys.executable, "-m", "bench.chat", "clients", server.url, str(count), str(requests), str(int(stream))]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    time.sleep(0.5)  # records that wait are part of the price
    return (server.cpu_s() - before) / requests * 1e6, found["p50_ms"], found["wrong"]


def compare(count: int, requests: int, rounds: int) -> bool:
    """Print the table; returns whether every request was answered."""
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        model = Server(["-m", "bench.chat", "upstream"], "/")
        path = Path(folder, "rheostat.yaml")
        path.write_text(CONFIG.format(url=model.url))
        bare = Server(["-m", "bench.chat", "proxy", model.url], "/cpu")
        gateway = Server(["-c", SERVE, str(path)], "/metrics")
        try:
            print(
                f"{count} clients, {rounds} alternating rounds of {requests} requests, {len(question(stream=False))} bytes\n"
            )
            print(f"{'':>10} {'cpu_us':>9} {'p50_ms':>9}     {'cpu_us':>9} {'a chunk':>9} {'p50_ms':>9}   (whole, streamed)")
            found: dict[str, list[tuple[float, float, float, float]]] = {"aiohttp": [], "gateway": []}
            for turn in range(rounds + 1):  # the first warms them up
                for name, server in (("aiohttp", bare), ("gateway", gateway)):
                    whole = load(server, count, requests, stream=False)
                    streamed = load(server, count, requests // 10, stream=True)
                    wrong += whole[2] + streamed[2]
                    if turn:
                        found[name].append((*whole[:2], *streamed[:2]))
            for name, rows in found.items():
                cpu, p50, streamed_cpu, streamed_p50 = (statistics.median(column) for column in zip(*rows, strict=True))
                chunk = streamed_cpu / (CHUNKS + 1)
                print(f"{name:>10} {cpu:>9.1f} {p50:>9.2f}     {streamed_cpu:>9.1f} {chunk:>9.1f} {streamed_p50:>9.2f}")
            print(f"\nno answer, or another: {wrong}")
        finally:
            for server in (gateway, bare, model):
                server.stop()
    return not wrong


def main() -> None:
    """Measure, or be the end that the first argument names."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if sys.argv[1:2] == ["upstream"]:
            runner.run(upstream())
        elif sys.argv[1:2] == ["proxy"]:
            runner.run(proxy(sys.argv[2]))
        elif sys.argv[1:2] == ["clients"]:
            _, _, url, count, requests, stream = sys.argv
            print(json.dumps(runner.run(clients(url, int(count), int(requests), stream=stream == "1"))))
    if sys.argv[1:2] in (["upstream"], ["proxy"], ["clients"]):
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--requests", type=int, default=8_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    sys.exit(0 if compare(given.clients, given.requests, given.rounds) else 1)


if __name__ == "__main__":
    main()
