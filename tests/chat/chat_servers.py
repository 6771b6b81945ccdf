"""Scripted chat servers, and gateways over them."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from rheostat.gateway.handle import ServerHandle
from rheostat.telemetry import SqliteReader
from rheostat.types import RouteRecord

SECRET = "sk-upstream/secret+1"


class Said(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[str]:
        """The data of every event."""
        return [event.removeprefix("data: ") for event in self.body.decode().split("\n\n") if event]


class Chats:
    """A chat server: `answer` gets the body and returns what is sent: bytes of a completion, a list of bytes (a stream, sent
    part by part), or a pair of status and bytes. `asked` has every body, as it came."""

    def __init__(self, answer: Callable[[Any], Any] | None = None) -> None:
        self.answer = answer or (lambda body: completion(f"you said {body['messages'][-1]['content']}"))
        self.asked: list[bytes] = []
        self.keys: list[str | None] = []
        self.gone = threading.Event()  # the other side has left while it was written to
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                outer.asked.append(body)
                outer.keys.append(self.headers["authorization"])
                said = outer.answer(json.loads(body))
                status, said = said if isinstance(said, tuple) else (200, said)
                self.send_response(status)
                if isinstance(said, bytes):
                    self.send_header("content-type", "application/json")
                    self.send_header("content-length", str(len(said)))
                    self.end_headers()
                    self.wfile.write(said)
                    return
                self.close_connection = True
                self.send_header("content-type", "text/event-stream")
                self.send_header("connection", "close")
                self.end_headers()
                try:
                    for part in said:
                        self.wfile.write(part)
                        self.wfile.flush()
                except OSError:
                    outer.gone.set()

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def completion(text: str | None, finish: str = "stop", logprobs: list[float] | None = None, **more: Any) -> bytes:
    choice: dict[str, Any] = {"index": 0, "message": {"role": "assistant", "content": text, **more}, "finish_reason": finish}
    if logprobs is not None:
        choice["logprobs"] = {"content": [
            {"token": "t", "logprob": value, "top_logprobs": [{"token": "t", "logprob": value}, {"logprob": -3.0}]}
            for value in logprobs
        ]}  # fmt: skip
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    whole = {"id": "c1", "object": "chat.completion", "created": 7, "model": "upstreams-own", "choices": [choice],
             "usage": usage, "x_unknown": [1e-3, "模型"]}  # fmt: skip
    return json.dumps(whole, ensure_ascii=False).encode()


def chunk(delta: Mapping[str, Any] | None, finish: str | None = None, **more: Any) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return b"data: " + json.dumps({"id": "c1", "choices": choices, **more}, ensure_ascii=False).encode() + b"\n\n"


@contextmanager
def gateway(folder: Path, config: str, task: str = "chat", records: str = "{sqlite: records.db}") -> Iterator[ServerHandle]:
    path = folder / "rheostat.yaml"
    path.write_text(f"task: {task}\nrecords: {records}\n{config}")
    with ServerHandle(str(path)) as handle:
        yield handle


def model(server: Chats, more: str = "") -> str:
    return f"{{backend: chat, base_url: '{server.url}', model: real-name, api_key: '{SECRET}'{more and ', ' + more}}}"


def ask(url: str, body: Any, headers: Mapping[str, str] | None = None) -> Said:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(
        f"{url}/v1/chat/completions", data, {"content-type": "application/json", **(headers or {})}
    )
    try:
        with urllib.request.urlopen(request, timeout=20) as reply:
            return Said(reply.status, dict(reply.headers), reply.read())
    except urllib.error.HTTPError as error:
        return Said(error.code, dict(error.headers), error.read())


def hello(text: str = "hello", **more: Any) -> dict[str, Any]:
    return {"model": "default", "messages": [{"role": "user", "content": text}], **more}


def record(folder: Path, reply: Said) -> RouteRecord:
    """Wait for the record of an answer."""
    until = time.monotonic() + 10
    while True:
        reader = SqliteReader(folder / "records.db")
        found = reader.get(reply.headers["x-rheostat-request-id"])
        reader.close()
        if found is not None:
            return found
        assert time.monotonic() < until, "no record came"
        time.sleep(0.02)
