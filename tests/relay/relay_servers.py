"""Scripted servers of language models that go on with an answer that has begun."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Scripted:
    """`write` is given the body and yields texts (a token each) or bytes (sent as they are); `asked` has every body, `cut`
    counts those whose client left before the end, and `sure` is the chance of every token where chances are asked for."""

    def __init__(
        self,
        write: Callable[[Any], Iterable[str | bytes]],
        *,
        usage: bool = True,
        sure: Callable[[Any], float] | None = None,
    ) -> None:
        self.write = write
        self.sure = sure
        self.asked: list[Any] = []
        self.pages: list[str] = []
        self.cut = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.asked.append(body)
                outer.pages.append(self.path)
                if self.path.endswith("/apply-template"):
                    return self.whole({"prompt": "".join(f"<{m['role']}>{m['content']}" for m in body["messages"]) + "<a>"})
                parts = outer.write(body)
                if isinstance(parts, int):
                    return self.whole({"error": {"message": "no", "code": parts}}, parts)
                self.stream(body, parts, "text" if self.path.endswith("/completions") and "prompt" in body else "")
                return None

            def whole(self, said: Any, status: int = 200) -> None:
                content = json.dumps(said).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def stream(self, body: Any, parts: Iterable[str | bytes], plain: str) -> None:
                self.close_connection = True
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("connection", "close")
                self.end_headers()
                room, written, finish = body.get("max_tokens", 10**9), 0, "stop"
                try:
                    for part in parts:
                        if isinstance(part, bytes):
                            self.send(part)
                            return
                        if written >= room:
                            finish = "length"
                            break
                        written += 1
                        sure = outer.sure(body) if outer.sure is not None and body.get("logprobs") else None
                        self.send(event(part, None, plain, sure))
                    self.send(event(None, finish, plain))
                    if usage:
                        told = {"prompt_tokens": 9, "completion_tokens": written, "total_tokens": 9 + written}
                        self.send(b"data: " + json.dumps({"choices": [], "usage": told}).encode() + b"\n\n")
                    self.send(b"data: [DONE]\n\n")
                except OSError:
                    outer.cut += 1

            def send(self, data: bytes) -> None:
                self.wfile.write(data)
                self.wfile.flush()

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def event(text: str | None, finish: str | None, plain: str = "", sure: float | None = None) -> bytes:
    said: dict[str, Any] = {"index": 0, "finish_reason": finish}
    if sure is not None:
        top = [{"token": text, "logprob": math.log(sure)}, {"token": "?", "logprob": math.log(1.0 - sure)}]
        said["logprobs"] = {"content": [{**top[0], "top_logprobs": top}]}
    if plain:
        said["text"] = text or ""
    else:
        said["delta"] = {} if text is None else {"content": text}
    return b"data: " + json.dumps({"id": "c", "choices": [said]}, ensure_ascii=False).encode() + b"\n\n"


@contextmanager
def scripted(write: Callable[[Any], Iterable[str | bytes]], **more: Any) -> Iterator[Scripted]:
    server = Scripted(write, **more)
    try:
        yield server
    finally:
        server.close()


def begins(body: Any) -> str:
    """What the server is told to go on from."""
    last = body["messages"][-1]
    return last["content"] if last["role"] == "assistant" else ""


def going_on(*tokens: str) -> Callable[[Any], Iterator[str]]:
    """Write the tokens; where some are written already, go on after them, as a model with a space before each word does."""
    whole = "".join(tokens)

    def write(body: Any) -> Iterator[str]:
        said = begins(body)
        assert whole.startswith(said), (whole, said)
        rest = whole[len(said) :]
        for token in tokens[::-1]:  # whole tokens where the seam lies between two, else the piece of one first
            if rest.endswith(token):
                rest = rest[: -len(token)]
            else:
                break
        done = len(whole) - len(said) - len(rest)
        tail, used = [], 0
        for token in tokens[::-1]:
            if used >= done:
                break
            tail.append(token)
            used += len(token)
        yield from ([rest] if rest else [])
        yield from reversed(tail)

    return write
