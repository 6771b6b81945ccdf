"""A conversation as one row: what a client of a chat endpoint sent, as it sent it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

_NO_PART = frozenset(
    ("model", "stream", "stream_options", "user", "metadata", "store", "safety_identifier", "prompt_cache_key")
)
"""Fields that do not change the answer."""
_IMAGES = frozenset(("image_url", "image", "input_image"))
_messages = msgspec.json.Decoder(list[dict[str, Any]]).decode
_value = msgspec.json.decode


class Chat(dict[str, Any]):
    """A conversation. As a mapping it is what rules and models that are no chat models see of it: `text` (of the user's last
    message), `messages`, whether it has `images` and `tools`, and its response `format` ("" for plain text).

    `fields` are the fields of the body as they were written, byte for byte, also those that nobody here knows.
    """

    __slots__ = ("fields",)

    def __init__(self, fields: Mapping[str, Raw]) -> None:
        """Read the fields.

        Raises:
            ValueError: `messages` is no list of messages, or one of the fields read here has a form of its own.
        """
        given = fields.get("messages")
        try:
            messages = _messages(given) if given is not None else []
        except (msgspec.DecodeError, RecursionError):
            messages = []
        if not messages or not all(isinstance(message.get("role"), str) for message in messages):
            raise ValueError("`messages` is a list of at least one message, each with a `role`")
        self.fields = fields
        user = next((message for message in reversed(messages) if message["role"] == "user"), None)
        super().__init__(
            text="" if user is None else "\n".join(_texts(user.get("content"))),
            messages=messages,
            images=any(part.get("type") in _IMAGES for message in messages for part in _parts(message.get("content"))),
            tools=bool(_read(fields, "tools") or _read(fields, "functions")),
            format=_format(_read(fields, "response_format")),
        )

    @property
    def spoken(self) -> str:
        """All that a model reads as text: what was said by anybody, calls of tools, and the tools themselves."""
        said: list[str] = []
        for message in self["messages"]:
            said += _texts(message.get("content"))
            if calls := message.get("tool_calls"):
                said.append(msgspec.json.encode(calls).decode())
        said += [bytes(self.fields[name]).decode() for name in ("tools", "functions") if name in self.fields]
        return "\n".join(said)

    @property
    def question(self) -> bytes:
        """What makes two conversations the same question: everything that changes the answer, as it was written."""
        return msgspec.json.encode({name: self.fields[name] for name in sorted(self.fields) if name not in _NO_PART})

    def asks(self, name: str) -> Any:
        """Return the value of a field of the body; None where it has none."""
        return _read(self.fields, name)


def _read(fields: Mapping[str, Raw], name: str) -> Any:
    given = fields.get(name)
    return None if given is None else _value(given)


def _format(given: Any) -> str:
    kind = given.get("type") if isinstance(given, dict) else None
    return kind if isinstance(kind, str) and kind != "text" else ""


def _parts(content: Any) -> Iterator[dict[str, Any]]:
    if isinstance(content, list):
        yield from (part for part in content if isinstance(part, dict))


def _texts(content: Any) -> Sequence[str]:
    if isinstance(content, str):
        return (content,)
    return [part["text"] for part in _parts(content) if isinstance(part.get("text"), str)]
