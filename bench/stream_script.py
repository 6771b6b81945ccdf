"""One stream as a faulty server sends it: all its bytes, how they are cut up, and where and how they end. From a seed."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

Then = Literal["keep", "close", "reset", "hang"]
_WORDS = (
    "The ", "refund ", "is ", "模型", "回答，", "😀", "👩‍👩‍👧", "é", "ñ ", "\n", "\n\n", '"', "\\", "\u2028", "  ", "\t",
    "data: ", "[DONE]", "{}", "\u0000", "a" * 60, ": ", "؟ كيف",
)  # fmt: skip
_GARBAGE = (
    b"\xff\xfe", b"\x00" * 9, b"\n\ndata: {]\n\n", b"HTTP/1.1 500 Oh\r\n\r\n", b"\r\n", b"\xf0\x9f\x98", b"data: ",
    b"}\n\n{", b'\n\ndata: {"choices": 7}\n\n', b"\n\ndata: null\n\n", b"0\r\n\r\n", b"ffffffffff\r\n", b"<html>",
)  # fmt: skip
_LINES = (b": still there", b":", b"id: 5", b"retry: 10", b"event: message", b"what: x")
_ERRORS: tuple[Any, ...] = (
    {"error": {"message": "overloaded", "type": "overloaded_error"}}, {"error": {"message": "busy", "code": 429}},
    {"error": "out of memory"}, {"error": {"message": "no", "code": "503"}, "choices": []},
)  # fmt: skip
KINDS = {
    "whole": 30, "cut": 18, "garbage": 11, "stall": 6, "pause": 6, "error": 6, "late": 5, "unfinished": 4, "status": 4,
    "another type": 3, "one completion": 3, "poison": 2, "huge": 2,
}  # fmt: skip
"""What a stream is like, and how often of a hundred."""
POISON = b"poison"


class Asked(NamedTuple):
    """What a client wants: texts of `choices` answers, or calls of `tools`, and the `usage`."""

    choices: int = 1
    tools: bool = False
    usage: bool = False


class Script(NamedTuple):
    """`wire` is sent up to `stop`, cut at `cuts`, with `pauses` (seconds) before some of them; then the connection is kept,
    closed, reset, or nothing more comes."""

    kind: str
    wire: bytes
    stop: int
    then: Then
    cuts: Sequence[int]
    pauses: Mapping[int, float]

    @property
    def sent(self) -> bytes:
        """What is sent in all."""
        return self.wire[: self.stop]


def asked(seed: str) -> Asked:
    """Return what the client of a stream wants."""
    chance = random.Random(f"asked {seed}")
    tools = chance.random() < 0.12
    return Asked(2 if not tools and chance.random() < 0.12 else 1, tools, chance.random() < 0.3)


def script(seed: str, name: str, wanted: Asked, kind: str = "") -> Script:
    """Return the stream of the model `name`; `kind` is one of `KINDS`, or drawn."""
    chance = random.Random(f"script {seed} {name}")
    kind = kind or chance.choices(tuple(KINDS), tuple(KINDS.values()))[0]
    if kind == "status":
        return _plain(chance, kind, chance.choice((500, 502, 503, 429)), "application/json", b'{"error":{"message":"busy"}}')
    if kind == "another type":
        page = b"<html><body>data: it is not</body></html>"
        return _plain(chance, kind, 200, chance.choice(("text/html", "application/json", "text/plain")), page)
    if kind == "one completion":
        return _plain(chance, kind, 200, "application/json", _completion(seed, name, wanted))
    body, ends = _body(chance, seed, name, wanted, kind)
    outside = chance.random() < 0.3  # of the events, so that it breaks the framing
    if kind == "garbage" and not outside:
        at = chance.randrange(len(body) + 1)
        body = body[:at] + _noise(chance) + body[at:]
    framing = chance.choices(("chunked", "close", "length"), (8, 1, 1))[0]
    type_ = chance.choice(("text/event-stream", "text/event-stream; charset=utf-8", "Text/Event-Stream"))
    wire = _framed(chance, framing, type_, body)
    then: Then = "close" if framing == "close" else "keep"
    stop = len(wire)
    pauses: dict[int, float] = {}
    if kind == "garbage" and outside:
        at = chance.randrange(len(wire) + 1)
        wire = wire[:at] + _noise(chance) + wire[at:]
        stop, then = len(wire), "close"
    elif kind == "poison":
        wire += b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 6\r\n\r\n" + POISON
        stop = len(wire)
    elif kind == "cut" or (kind == "unfinished" and not ends):
        stop = chance.randrange(len(wire)) if kind == "cut" else len(wire)
        then = "reset" if chance.random() < 0.3 else "close"
    elif kind == "stall":
        stop, then = chance.randrange(len(wire)), "hang"
    elif kind == "pause":
        pauses = {chance.randrange(len(wire)): chance.uniform(0.02, 0.15) for _ in range(3)}
    if kind == "garbage" and then == "keep":
        then = "close"
    few = chance.random() < 0.5
    cuts = {chance.randrange(len(wire)) for _ in range(chance.randrange(3) if few else chance.randrange(40))}
    return Script(kind, wire, stop, then, sorted({*cuts, *pauses}), pauses)


def _noise(chance: random.Random) -> bytes:
    if chance.random() < 0.2:
        return bytes(chance.randrange(128, 256) for _ in range(chance.randrange(1, 30)))
    return chance.choice(_GARBAGE)


def _plain(chance: random.Random, kind: str, status: int, type_: str, body: bytes) -> Script:
    head = f"HTTP/1.1 {status} Said\r\ncontent-type: {type_}\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    wire = head + body
    return Script(kind, wire, len(wire), "keep", sorted({chance.randrange(len(wire)) for _ in range(2)}), {})


def _texts(chance: random.Random, tag: str, kind: str) -> list[str]:
    words = [chance.choice(_WORDS) for _ in range(chance.randrange(1, 14))]
    if kind == "huge":
        words.insert(chance.randrange(len(words)), chance.choice(("模型😀", "x")) * 30_000)
    return [*([" "] if chance.random() < 0.1 else []), tag, *words]


def _completion(seed: str, name: str, wanted: Asked) -> bytes:
    said: list[dict[str, Any]] = []
    for index in range(wanted.choices):
        message = {"role": "assistant", "content": f"{name}{seed}: whole, 模型 {index}"}
        said.append({"index": index, "message": message, "finish_reason": "stop"})
    return json.dumps({"id": f"id-{name}", "object": "chat.completion", "created": 1, "choices": said}).encode()


def _deltas(chance: random.Random, seed: str, name: str, wanted: Asked, kind: str) -> list[list[dict[str, Any]]]:
    """Return the choices of every chunk that says something, in order."""
    tracks: list[list[dict[str, Any]]] = []
    if wanted.tools:
        deltas: list[dict[str, Any]] = []
        for index in range(chance.randrange(1, 3)):
            call = {"index": index, "id": f"call-{index}", "type": "function"}
            deltas.append({"tool_calls": [{**call, "function": {"name": f"f_{name}{seed}", "arguments": ""}}]})
            arguments = json.dumps({"text": "".join(_texts(chance, f"{name}{seed}:", kind))}, ensure_ascii=False)
            at = sorted(chance.randrange(len(arguments)) for _ in range(4))
            parts = [arguments[one:other] for one, other in zip([0, *at], [*at, None], strict=True)]
            deltas += [{"tool_calls": [{"index": index, "function": {"arguments": part}}]} for part in parts]
        tracks.append([{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas])
    else:
        for index in range(wanted.choices):
            texts = _texts(chance, f"{name}{seed}.{index}:", kind)
            tracks.append([{"index": index, "delta": {"content": text}, "finish_reason": None} for text in texts])
    found = []
    while any(tracks):
        track = chance.choice([each for each in tracks if each])
        found.append([track.pop(0)])
    return found


def _body(chance: random.Random, seed: str, name: str, wanted: Asked, kind: str) -> tuple[bytes, bool]:
    """Return the events as bytes, and whether they tell an end."""
    head = {"id": f"id-{name}", "object": "chat.completion.chunk", "created": 1, "model": f"up-{name}"}
    opening = [{"index": index, "delta": {"role": "assistant", "content": ""}} for index in range(wanted.choices)]
    said: list[Any] = [{**head, "choices": [each]} for each in opening] if chance.random() < 0.9 else []
    said += [{**head, "choices": choices} for choices in _deltas(chance, seed, name, wanted, kind)]
    reason = "tool_calls" if wanted.tools else chance.choice(("stop", "stop", "length"))
    ends = [{"index": index, "delta": {}, "finish_reason": reason} for index in range(wanted.choices)]
    finish, marker = True, chance.random() < 0.85
    if kind == "unfinished":
        finish, marker = False, chance.random() < 0.4
    if finish:
        if chance.random() < 0.2 and not wanted.tools and wanted.choices == 1:
            said[-1]["choices"][0]["finish_reason"] = reason  # with the last text
        else:
            said += [{**head, "choices": [end]} for end in ends]
    if kind == "late":
        late = {**head, "choices": [{"index": 0, "delta": {"content": "too late"}, "finish_reason": None}]}
        said += [late] if marker or chance.random() < 0.7 else ["{]"]
    if wanted.usage and (finish or marker):
        said.append({**head, "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 9, "total_tokens": 16}})
    if kind == "error":
        at = chance.randrange(len(said) if finish else len(said) + 1)
        said[at:] = [chance.choice(_ERRORS)]
        marker = chance.random() < 0.5
    if marker:
        said.append("[DONE]")
        if kind == "late":
            said.append({**head, "choices": [{"index": 0, "delta": {"content": "far too late"}}]})
    end = chance.choices((b"\n", b"\r\n", b"\r"), (6, 3, 1))[0]
    parts = [b"\xef\xbb\xbf" if chance.random() < 0.1 else b""]
    for each in said:
        if chance.random() < 0.08:
            parts.append(
                chance.choice((b": still there", b":", b"id: 5", b"retry: 10", b"event: message", b"what: x")) + end
            )
            if chance.random() < 0.5:
                parts.append(end)
        parts.append(_event(chance, each, end))
    return b"".join(parts), finish or marker


def _event(chance: random.Random, said: Any, end: bytes) -> bytes:
    plain = chance.random() < 0.5
    lines = [said]
    if not isinstance(said, str):
        indent = 1 if chance.random() < 0.1 else None
        lines = json.dumps(said, ensure_ascii=plain, indent=indent).split("\n")
    field = "data:" if chance.random() < 0.2 else "data: "
    return b"".join(f"{field}{line}".encode() + end for line in lines) + end


def _framed(chance: random.Random, framing: str, type_: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {type_}\r\n"
    if framing == "length":
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    if framing == "close":
        return f"{head}Connection: close\r\n\r\n".encode() + body
    at = sorted({chance.randrange(1, len(body)) for _ in range(chance.choice((0, 3, 20)))})
    parts = [body[one:other] for one, other in zip([0, *at], [*at, None], strict=True)]
    extension = b";x=y" if chance.random() < 0.03 else b""
    chunks = [b"%x%b\r\n%b\r\n" % (len(part), extension, part) for part in parts]
    return f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + b"".join(chunks) + b"0\r\n\r\n"
