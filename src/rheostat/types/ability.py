"""What a conversation asks of a model besides an answer."""

from __future__ import annotations

from typing import Any, Literal, get_args

from rheostat.types.chat import Chat

Ability = Literal["images", "audio", "files", "tools", "json_object", "json_schema"]
"""What not every language model can take: pictures, sound or files in a message, tools, or a response format."""
_KNOWN = frozenset(get_args(Ability))
_PARTS = {
    "image_url": "images", "image": "images", "input_image": "images", "input_audio": "audio", "file": "files",
    "input_file": "files",
}  # fmt: skip
NOTHING: frozenset[str] = frozenset()


def needs_of(data: Any) -> frozenset[str]:
    """Return the abilities that an input needs; none for anything but a conversation.

    Earlier turns count as well: a model has to read the calls of tools and the pictures that came before.
    """
    if not isinstance(data, Chat):
        return NOTHING
    needs = {data["format"]} & _KNOWN
    if data["tools"]:
        needs.add("tools")
    for message in data["messages"]:
        if message.get("tool_calls") or message["role"] == "tool":
            needs.add("tools")
        content = message.get("content")
        if isinstance(content, list):
            needs.update(
                _PARTS[kind]
                for part in content
                if isinstance(part, dict) and isinstance(kind := part.get("type"), str) and kind in _PARTS
            )
    return frozenset(needs)
