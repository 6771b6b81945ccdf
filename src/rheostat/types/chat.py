"""A conversation as one row: what a client of a chat endpoint sent, as it sent it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import msgspec
from msgspec import Raw

_NO_PART = frozenset(
    ("model", "stream", "stream_options", "user", "metadata", "store", "safety_identifier", "prompt_cache_key")
)
"""Fields that do not change the answer."""
_IMAGES = ("image_url", "image", "input_image")
_READ_TOO = ("tools", "functions", "response_format")
Kind = Literal["chat", "completion", "embedding"]
"""What is asked of a language model: the next turn of a conversation, how a text goes on, or the vectors of texts."""
_messages = msgspec.json.Decoder(list[dict[str, Any]]).decode
_value = msgspec.json.decode


class Chat(dict[str, Any]):
    """A conversation. As a mapping it is what rules and models that are no chat models see of it: its `kind`, `text` (of the
    user's last message), `messages`, whether it has `images` and `tools`, and its response `format` ("" for plain text).

    `fields` are the fields of the body as they were written, byte for byte, also those that nobody here knows. What else a
    language model may be asked is a kind of its own (`rheostat.types.prompt`).
    """

    __slots__ = ("fields",)
    kind: ClassVar[Kind] = "chat"

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
            kind=self.kind,
            text="" if user is None else "\n".join(_texts(user.get("content"))),
            messages=messages,
            images=any(part.get("type") in _IMAGES for message in messages for part in _parts(message.get("content"))),
            tools=bool(_read(fields, "tools") or _read(fields, "functions")),
            format=_format(_read(fields, "response_format")),
        )

    @property
    def spoken(self) -> str:
        """All that a model reads as text: what was said by anybody, calls of tools, the tools themselves and a response
        format."""
        said: list[str] = []
        for message in self["messages"]:
            said += _texts(message.get("content"))
            if calls := message.get("tool_calls"):
                said.append(msgspec.json.encode(calls).decode())
        said += [bytes(self.fields[name]).decode() for name in _READ_TOO if name in self.fields]
        return "\n".join(said)

    @property
    def pictures(self) -> int:
        """How many pictures there are in all messages."""
        found = (part for message in self["messages"] for part in _parts(message.get("content")))
        return sum(part.get("type") in _IMAGES for part in found) if self["images"] else 0

    @property
    def ids(self) -> int:
        """How many tokens came as numbers, beside `spoken`."""
        return 0

    @property
    def choices(self) -> int:
        """How many answers there will be."""
        wanted = self.asks("n")
        return wanted if isinstance(wanted, int) and wanted > 1 else 1

    @property
    def question(self) -> bytes:
        """What makes two of them the same question: the kind and everything that changes the answer, as it was written."""
        asked = {name: self.fields[name] for name in sorted(self.fields) if name not in _NO_PART}
        return self.kind.encode() + msgspec.json.encode(asked)

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
