"""The answers of a faulty upstream in the words of whoever asks: plain JSON, chat completions, or inference protocol v2."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rheostat.testing.step import EchoId, EchoSum, Ok, Score, Scores, Step

CHAT, V2, PLAIN = "chat", "v2", "plain"
_DIGITS = re.compile(r"\d+")


def asked_in(path: str, body: Any) -> str:
    """Say which protocol a request speaks."""
    if isinstance(body, Mapping):
        if "messages" in body:
            return CHAT
        if "inputs" in body or path.startswith("/v2/"):
            return V2
    return PLAIN


def text_in(body: Any) -> str:
    """Return the text of a request: its `data` (or the text in it), the last message, or the first input's data."""
    if not isinstance(body, Mapping):
        return ""
    if "messages" in body:
        messages = body["messages"]
        content = messages[-1].get("content") if isinstance(messages, list) and messages else ""
        return content if isinstance(content, str) else json.dumps(content)
    if "inputs" in body:
        data = body["inputs"][0].get("data", [""]) if body["inputs"] else [""]
        return str(data[0]) if data else ""
    data = body.get("data", body.get("text", ""))
    if isinstance(data, Mapping):
        data = data.get("text", "")
    return data if isinstance(data, str) else ""


def answered(step: Step, path: str, body: Any, labels: Sequence[str], output: str) -> bytes | None:
    """Return the body of a good answer to `body`, or None when the step has none for it; `rows` are answered in one.

    `labels` is the order of the scores in an answer of protocol v2, `output` the name of its tensor.
    """
    if isinstance(body, Mapping) and isinstance(body.get("rows"), list):
        each = [answered(step, path, {"data": row}, labels, output) for row in body["rows"]]
        good = [json.loads(answer) for answer in each if answer is not None]
        return _json({"answers": good}) if len(good) == len(each) else None
    protocol = asked_in(path, body)
    if isinstance(step, Scores):
        values = dict(step.values)
        best = max(values, key=lambda label: values[label])
        if protocol == V2:
            return _v2(output, "FP32", [values.get(label, 0.0) for label in labels or tuple(values)])
        return _chat(best) if protocol == CHAT else _json({"label": best, "scores": values})
    if isinstance(step, Score):
        if protocol == V2 and step.label in labels and step.confidence is not None:
            rest = (1.0 - step.confidence) / max(1, len(labels) - 1)
            return _v2(output, "FP32", [step.confidence if label == step.label else rest for label in labels])
        if protocol == PLAIN:
            return _json({"label": step.label, "confidence": step.confidence})
        return _text(protocol, step.label, output)
    if isinstance(step, EchoSum):
        return _summed(step, body)
    text = _DIGITS.search(text_in(body)) if isinstance(step, EchoId) else None
    told = text[0] if text else getattr(step, "body", "ok")
    return _text(protocol, told, output)


def streamed(pieces: Sequence[str]) -> Iterator[bytes]:
    """Yield the events of a stream without its end: an opening one without text, then one for each piece."""
    yield event({"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"role": "assistant"}}]})
    for piece in pieces:
        yield event({"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": piece}}]})


def stream_end() -> bytes:
    """Return the last events of a stream that is whole."""
    last = {"index": 0, "delta": {}, "finish_reason": "stop"}
    return event({"object": "chat.completion.chunk", "choices": [last]}) + b"data: [DONE]\n\n"


def stream_error() -> bytes:
    """Return the event by which a stream tells that it failed."""
    return event({"error": {"message": "scripted", "type": "server_error"}})


def event(value: Any) -> bytes:
    """Return one server-sent event."""
    return b"data: " + _json(value) + b"\n\n"


def asks_for_stream(body: Any) -> bool:
    """Return True when the request wants its answer piece by piece."""
    return isinstance(body, Mapping) and body.get("stream") is True


def piece_of(step: Step) -> str:
    """Return the text of a step that is asked for as a stream."""
    return step.body if isinstance(step, Ok) else getattr(step, "label", "")


def _text(protocol: str, text: str, output: str) -> bytes:
    if protocol == CHAT:
        return _chat(text)
    if protocol == V2:
        return _v2(output, "BYTES", [text])
    return _json({"label": text, "output": text})


def _summed(step: EchoSum, body: Any) -> bytes | None:
    data = body.get("data") if isinstance(body, Mapping) else None
    vector = data.get("vector") if isinstance(data, Mapping) else None
    if not isinstance(vector, list) or step.raise_if_fill in vector:
        return None
    total = sum(vector)
    return _json({"label": f"{total:g}", "confidence": 1.0, "output": {"y": total}})


def _chat(text: str) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return _json({"object": "chat.completion", "choices": [choice]})


def _v2(name: str, datatype: str, data: Sequence[Any]) -> bytes:
    return _json({"outputs": [{"name": name, "datatype": datatype, "shape": [1, len(data)], "data": list(data)}]})


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")  # NaN stays NaN: a fault to be met
