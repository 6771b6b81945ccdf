"""What a stream says, read at once by the rules: HTTP/1.1's framing, the event stream format, chunks of a completion.

It shares no code with the gateway, so that the two can be held against each other.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

_SIZE = re.compile(rb"([0-9a-fA-F]{1,8})[ \t]*(?:;[^\r\n]*)?\r\n")


@dataclass
class Heard:
    """What was said. `data` holds every event's data up to the end or the first fault, `least` without one that no empty
    line ended; `texts` what each choice says, and `calls` the arguments of calls of tools by choice and number.

    `complete`: it can be taken for complete. `surely`: it cannot be taken for anything else. `error`: the last event tells
    an error. `whole`: it is one completion, and no stream.
    """

    status: int = 0
    data: list[str] = field(default_factory=list)
    least: list[str] = field(default_factory=list)
    texts: dict[int, str] = field(default_factory=dict)
    calls: dict[tuple[int, int], str] = field(default_factory=dict)
    finishes: dict[int, str] = field(default_factory=dict)
    usage: Any = None
    marker: bool = False
    error: bool = False
    complete: bool = False
    surely: bool = False
    whole: bool = False
    rest: bytes = b""

    @property
    def speaks(self) -> bool:
        """Whether it says anything that a client would see."""
        return any(text.strip() for text in self.texts.values()) or bool(self.calls)


def heard(wire: bytes, choices: int = 1, *, ended: bool = True) -> Heard:
    """Return what these bytes of one HTTP response say. `ended`: nothing follows, and the connection says so."""
    head, found, rest = wire.partition(b"\r\n\r\n")
    if not found:
        return Heard()
    first, *lines = head.split(b"\r\n")
    match = re.fullmatch(rb"HTTP/1\.[01] (\d{3}) ?.*", first)
    if match is None:
        return Heard()
    pairs = [line.partition(b":") for line in lines]
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    odd = any(re.fullmatch(rb"[!#-'*+\-.0-9A-Z^-z|~]+:[\t\x20-\x7e\x80-\xff]*", line) is None for line in lines)
    body, all_there, rest, broken = _unframed(rest, headers, ended)
    said = Heard(int(match[1]), rest=rest)
    if said.status != 200:
        return said
    if headers.get(b"content-type", b"").lower().startswith(b"application/json"):
        said.whole = True
        _read_completion(said, body if all_there else b"")
        return said
    _read_events(said, body, choices, flushed=False)
    sure, least = said.complete, said.data
    if ended or all_there:
        said = Heard(said.status, rest=rest)
        _read_events(said, body, choices, flushed=True)
    said.least = least
    said.surely = (sure or (said.complete and all_there)) and not (broken or odd)
    return said


def _unframed(rest: bytes, headers: dict[bytes, bytes], ended: bool) -> tuple[bytes, bool, bytes, bool]:
    """Return the body, whether it is all there, what follows, and whether its framing is broken."""
    if headers.get(b"transfer-encoding", b"").lower() != b"chunked":
        if b"content-length" in headers:
            size = int(headers[b"content-length"])
            return rest[:size], len(rest) >= size, rest[size:], False
        return rest, ended, b"", False
    body, at = b"", 0
    while (match := _SIZE.match(rest, at)) is not None:
        size = int(match[1], 16)
        if size == 0:
            done = rest.startswith(b"\r\n", match.end())
            return body, done, rest[match.end() + 2 :] if done else b"", not done and len(rest) > match.end() + 1
        body += rest[match.end() : match.end() + size]
        at = match.end() + size + 2
        if rest[at - 2 : at] != b"\r\n":
            return body, False, b"", len(rest) >= at
    return body, False, b"", b"\r\n" in rest[at:]


def _read_completion(said: Heard, body: bytes) -> None:
    try:
        whole = json.loads(body)
        for choice in whole["choices"]:
            said.texts[choice["index"]] = choice["message"]["content"]
            said.finishes[choice["index"]] = choice["finish_reason"]
        said.usage = whole.get("usage")
    except (ValueError, KeyError, TypeError):
        said.texts.clear()
    said.complete = said.surely = bool(said.texts)


def _read_events(said: Heard, body: bytes, choices: int, *, flushed: bool) -> None:
    lines = re.split(rb"\r\n|\n|\r", body.removeprefix(b"\xef\xbb\xbf"))
    tail = lines.pop()
    if flushed:
        lines += [tail, b""]
    data: list[bytes] = []
    name = b""
    for line in lines:
        key, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if key == b"data":
            data.append(value)
        elif key == b"event":
            name = value
        elif not line:
            if data and not _read_event(said, b"\n".join(data), name, choices):
                return
            data, name = [], b""


def _read_event(said: Heard, data: bytes, name: bytes, choices: int) -> bool:
    """Take in one event; False when nothing after it counts."""
    try:
        text = data.decode()
        if not text.strip():
            return True
        if text.strip() == "[DONE]":
            said.marker = True
            spoke = set(said.texts) | {index for index, _ in said.calls}
            said.complete = said.complete or not (said.calls or said.finishes) or spoke <= set(said.finishes)
            return False
        if text.strip() == "null" and not said.speaks:
            return True
        chunk = json.loads(text)
    except ValueError:
        return False
    if not isinstance(chunk, dict) or not isinstance(chunk.get("choices") or [], list):
        return False
    if name == b"error" or chunk.get("error") is not None:
        said.error = not said.complete
        return False
    listed = chunk.get("choices") or []
    if said.complete and listed:
        return True  # late
    said.data.append(text)
    said.usage = chunk.get("usage") or said.usage
    for choice in listed:
        index, delta = choice.get("index", 0), choice.get("delta") or {}
        if isinstance(delta.get("content"), str):
            said.texts[index] = said.texts.get(index, "") + delta["content"]
        for call in delta.get("tool_calls") or ():
            key = (index, call.get("index", 0))
            said.calls[key] = said.calls.get(key, "") + call.get("function", {}).get("arguments", "")
        if choice.get("finish_reason"):
            said.finishes[index] = choice["finish_reason"]
    said.complete = said.complete or len(said.finishes) >= choices
    return True
