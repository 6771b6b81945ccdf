"""What `POST /v1/messages` takes: Anthropic's request, read strictly. A field without a counterpart is refused, not lost."""

from __future__ import annotations

import re
from typing import Literal

import msgspec
from msgspec import Raw, Struct

from rheostat.errors import BadRequest

ABSENT = Raw(b"null")
"""A value that may be anything and was not given."""


class _Strict(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Refuses what it does not know."""


class TextBlock(_Strict, frozen=True, tag_field="type", tag="text"):
    """A text."""

    text: str
    cache_control: Raw = ABSENT
    citations: None = None


class Base64Source(_Strict, frozen=True, tag_field="type", tag="base64"):
    """Bytes."""

    media_type: str
    data: str


class UrlSource(_Strict, frozen=True, tag_field="type", tag="url"):
    """An address that the model's server fetches."""

    url: str


class ImageBlock(_Strict, frozen=True, tag_field="type", tag="image"):
    """A picture."""

    source: Base64Source | UrlSource
    cache_control: Raw = ABSENT


class DocumentBlock(_Strict, frozen=True, tag_field="type", tag="document"):
    """A file."""

    source: Base64Source
    title: str | None = None
    cache_control: Raw = ABSENT
    citations: None = None
    context: None = None


class ToolUseBlock(_Strict, frozen=True, tag_field="type", tag="tool_use"):
    """A call of a tool, as the model made it."""

    id: str
    name: str
    input: Raw
    cache_control: Raw = ABSENT


class ToolResultBlock(_Strict, frozen=True, tag_field="type", tag="tool_result"):
    """What a tool said."""

    tool_use_id: str
    content: str | list[TextBlock | ImageBlock | DocumentBlock] = ""
    is_error: bool = False
    cache_control: Raw = ABSENT


class ThinkingBlock(_Strict, frozen=True, tag_field="type", tag="thinking"):
    """What the model thought before it spoke."""

    thinking: str
    signature: Literal[""] = ""


Block = TextBlock | ImageBlock | DocumentBlock | ToolUseBlock | ToolResultBlock | ThinkingBlock


class Message(_Strict, frozen=True):
    """One turn."""

    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


class Tool(_Strict, frozen=True):
    """A tool of the client."""

    name: str
    input_schema: Raw
    description: str | None = None
    type: Literal["custom"] | None = None
    strict: bool | None = None
    cache_control: Raw = ABSENT


class AnyChoice(_Strict, frozen=True, tag_field="type", tag="any"):
    """Some tool has to be called."""

    disable_parallel_tool_use: bool = False


class AutoChoice(_Strict, frozen=True, tag_field="type", tag="auto"):
    """The model decides."""

    disable_parallel_tool_use: bool = False


class NoChoice(_Strict, frozen=True, tag_field="type", tag="none"):
    """No tool may be called."""


class ToolChoice(_Strict, frozen=True, tag_field="type", tag="tool"):
    """This tool has to be called."""

    name: str
    disable_parallel_tool_use: bool = False


class Format(_Strict, frozen=True, tag_field="type", tag="json_schema"):
    """What the answer has to look like."""

    schema: Raw


class OutputConfig(_Strict, frozen=True):
    """How the answer is to be."""

    format: Format | None = None
    effort: str | None = None


class Metadata(_Strict, frozen=True):
    """Who asks."""

    user_id: str | None = None


class NoThinking(_Strict, frozen=True, tag_field="type", tag="disabled"):
    """The model is not asked to think first."""


class MessagesBody(_Strict, frozen=True):
    """The whole."""

    model: str
    messages: list[Message]
    max_tokens: int
    system: str | list[TextBlock] | None = None
    stop_sequences: list[str] | None = None
    stream: bool = False
    temperature: Raw = ABSENT
    top_p: Raw = ABSENT
    top_k: Raw = ABSENT
    metadata: Metadata | None = None
    tools: list[Raw] | None = None
    tool_choice: AnyChoice | AutoChoice | NoChoice | ToolChoice | None = None
    output_config: OutputConfig | None = None
    thinking: NoThinking | None = None
    service_tier: Literal["auto"] | None = None
    cache_control: Raw = ABSENT


class _Typed(Struct):
    type: str | None = None


_body = msgspec.json.Decoder(MessagesBody).decode
_typed = msgspec.json.Decoder(_Typed).decode
_tool = msgspec.json.Decoder(Tool).decode
_AT = re.compile(r" - at `\$\.?(.*?)`$")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_TAG = re.compile(r"Invalid value '(.*)'", re.DOTALL)


def read_messages(body: bytes) -> MessagesBody:
    """Read a body.

    Raises:
        BadRequest: with the field, and why.
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: it is no JSON.
    """
    try:
        return _body(body)
    except msgspec.ValidationError as error:
        raise _refused(error, "") from None


def read_tool(given: Raw, index: int) -> Tool:
    """Read one of `tools`.

    Raises:
        BadRequest: with the field, and why.
    """
    at = f"tools[{index}]"
    try:
        kind = _typed(given).type
        if kind not in (None, "custom"):
            raise BadRequest(
                f"{at}.type: {kind[:80]!r} is a tool of Anthropic's servers, and there are none here", f"{at}.type"
            )
        return _tool(given)
    except msgspec.ValidationError as error:
        raise _refused(error, at) from None


def _refused(error: msgspec.ValidationError, start: str) -> BadRequest:
    told = str(error)
    place = _AT.search(told)
    told = _AT.sub("", told)
    at = ".".join(part for part in (start, place[1] if place else "") if part)
    if unknown := _UNKNOWN.match(told):
        field = ".".join(part for part in (at, unknown[1][:80]) if part)
        return BadRequest(f"{field}: OpenAI's form, which the models here speak, has no such field; leave it out", field)
    if tag := _TAG.match(told):
        return BadRequest(f"{at}: {tag[1][:80]!r} has no counterpart in OpenAI's form, which the models here speak", at)
    if told.startswith(("Expected `null`", "Invalid enum value")):
        return BadRequest(f"{at}: this cannot be said in OpenAI's form, which the models here speak; leave it out", at)
    return BadRequest(f"{at or 'body'}: {told[:1].lower()}{told[1:]}".replace("`", ""), at or None)
