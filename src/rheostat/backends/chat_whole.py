"""The chunks of a streamed completion, put together to the completion that they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

_SAID_ONCE = frozenset(("role", "id", "type", "name"))  # some servers repeat them in every chunk


class Whole:
    """Takes chunk by chunk: texts are joined, calls of tools by their index; of other fields the last value counts.

    A choice of a conversation has a `delta` of its message in each chunk, one of a text that goes on the next `text`.
    """

    def __init__(self) -> None:
        self._top: dict[str, Any] = {}
        self._choices: dict[Any, dict[str, Any]] = {}

    def add(self, chunk: Mapping[str, Any]) -> None:
        """Take the next chunk."""
        self._top.update((name, value) for name, value in chunk.items() if name != "choices" and value is not None)
        for part in chunk.get("choices") or ():
            if isinstance(part, Mapping):
                self._add(part)

    @property
    def is_half(self) -> bool:
        """Whether an end marker now is not to be believed: a call of a tool, or one of several choices, has not finished."""
        left = [choice for choice in self._choices.values() if not choice["finish_reason"]]
        return bool(left) and (
            len(left) < len(self._choices) or any("tool_calls" in choice.get("message", ()) for choice in left)
        )

    def body(self) -> bytes:
        """Return the completion as it is so far."""
        choices = [_done(choice) for _, choice in sorted(self._choices.items())]
        told = self._top.get("object")
        form = told if told == "text_completion" else "chat.completion"
        return msgspec.json.encode({**self._top, "object": form, "choices": choices})

    def _add(self, part: Mapping[str, Any]) -> None:
        index = part.get("index", 0)
        if not isinstance(index, int):
            return
        fresh = {"index": index, "logprobs": None, "finish_reason": None}
        choice = self._choices.setdefault(index, fresh)
        if isinstance(text := part.get("text"), str):
            _merge(choice, {"text": text})
        elif "text" not in choice:
            message = choice.setdefault("message", {"role": "assistant", "content": None})
            if isinstance(delta := part.get("delta"), Mapping):
                _merge(message, delta)
        if isinstance(chances := part.get("logprobs"), Mapping):
            choice["logprobs"] = choice["logprobs"] or {}
            _merge(choice["logprobs"], chances)
        choice["finish_reason"] = part.get("finish_reason") or choice["finish_reason"]


class _Text(list[str]):
    """A text in parts; joined once, as adding each part to a long text would copy it every time."""


class _Calls(dict[int, dict[str, Any]]):
    """Calls of tools by their index."""


def _merge(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    for name, value in more.items():
        before = into.get(name)
        if value is None:
            into.setdefault(name, None)
        elif isinstance(value, str) and name not in _SAID_ONCE:
            into[name] = before = before if isinstance(before, _Text) else _Text()
            before.append(value)
        elif name == "tool_calls" and isinstance(value, list):
            into[name] = before = before if isinstance(before, _Calls) else _Calls()
            for part in value:
                if isinstance(part, Mapping) and isinstance(index := part.get("index", 0), int):
                    _merge(before.setdefault(index, {}), {key: each for key, each in part.items() if key != "index"})
        elif isinstance(value, list):
            into[name] = before = before if isinstance(before, list) else []
            before.extend(value)
        elif isinstance(value, Mapping):
            into[name] = before = before if isinstance(before, dict) else {}
            _merge(before, value)
        else:
            into[name] = value


def _done(value: Any) -> Any:
    if isinstance(value, _Text):
        return "".join(value)
    if isinstance(value, _Calls):
        return [_done(call) for _, call in sorted(value.items())]
    return {name: _done(each) for name, each in value.items()} if isinstance(value, dict) else value
