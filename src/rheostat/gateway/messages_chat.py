"""Anthropic's messages as a conversation in OpenAI's form: every field at its counterpart, values as they were written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from rheostat.gateway.messages_body import (
    ABSENT,
    AnyChoice,
    Block,
    DocumentBlock,
    ImageBlock,
    Message,
    MessagesBody,
    NoChoice,
    TextBlock,
    ThinkingBlock,
    ToolChoice,
    ToolResultBlock,
    ToolUseBlock,
    UrlSource,
    read_tool,
)
from rheostat.types import Chat

_encode = msgspec.json.encode
_AS_IT_IS = ("temperature", "top_p", "top_k", "cache_control")
_NULL = bytes(ABSENT)
_ERROR = "Error: "
"""Before what a tool said that failed; OpenAI's form has no field for it."""


def chat_of(body: MessagesBody) -> Chat:
    """Return the conversation.

    Raises:
        BadRequest: a tool is none of the client's own.
        ValueError: there are no messages.
    """
    if not body.messages:
        raise ValueError("messages: there has to be at least one")
    said: list[Any] = []
    if body.system is not None:
        said.append(
            {
                "role": "system",
                "content": _content([TextBlock(text=body.system)] if isinstance(body.system, str) else body.system),
            }
        )
    for message in body.messages:
        said += _turns(message)
    fields: dict[str, Any] = {"model": body.model, "messages": said, "max_tokens": body.max_tokens}
    fields |= {name: value for name in _AS_IT_IS if bytes(value := getattr(body, name)) != _NULL}
    if body.stop_sequences:
        fields["stop"] = body.stop_sequences
    if body.metadata is not None and body.metadata.user_id is not None:
        fields["user"] = body.metadata.user_id
    if body.tools:
        fields["tools"] = [_tool(given, index) for index, given in enumerate(body.tools)]
    fields |= _choice(body)
    if body.output_config is not None and body.output_config.format is not None:
        schema = {"name": "answer", "schema": body.output_config.format.schema, "strict": True}
        fields["response_format"] = {"type": "json_schema", "json_schema": schema}
    if body.output_config is not None and body.output_config.effort is not None:
        fields["reasoning_effort"] = body.output_config.effort
    if body.stream:
        fields |= {"stream": True, "stream_options": {"include_usage": True}}
    return Chat({name: Raw(_encode(value)) for name, value in fields.items()})


def _turns(message: Message) -> list[dict[str, Any]]:
    """Return a message, and before, between and after its parts what tools said, each as a message of its own."""
    if isinstance(message.content, str):
        return [{"role": message.role, "content": message.content}]
    turns: list[dict[str, Any]] = []
    parts: list[Block] = []
    for block in message.content:
        if isinstance(block, ToolResultBlock):
            turns += _turn(message.role, parts)
            parts = []
            turns.append(_result(block))
        else:
            parts.append(block)
    return turns + _turn(message.role, parts, even_empty=not turns)


def _turn(role: str, blocks: Sequence[Block], *, even_empty: bool = False) -> list[dict[str, Any]]:
    if not blocks and not even_empty:
        return []
    calls = [_call(block) for block in blocks if isinstance(block, ToolUseBlock)]
    thoughts = [block.thinking for block in blocks if isinstance(block, ThinkingBlock)]
    parts = [block for block in blocks if isinstance(block, TextBlock | ImageBlock | DocumentBlock)]
    turn: dict[str, Any] = {"role": role, "content": _content(parts) if parts or not calls else None}
    if thoughts:
        turn["reasoning_content"] = "\n".join(thoughts)
    if calls:
        turn["tool_calls"] = calls
    return [turn]


def _content(blocks: Sequence[TextBlock | ImageBlock | DocumentBlock]) -> Any:
    """Return one plain text as a text, as not every server takes parts in all places; everything else as parts."""
    if not blocks:
        return ""
    first = blocks[0]
    if len(blocks) == 1 and isinstance(first, TextBlock) and bytes(first.cache_control) == _NULL:
        return first.text
    return [_part(block) for block in blocks]


def _part(block: TextBlock | ImageBlock | DocumentBlock) -> dict[str, Any]:
    if isinstance(block, TextBlock):
        part: dict[str, Any] = {"type": "text", "text": block.text}
    elif isinstance(block, DocumentBlock):
        data = f"data:{block.source.media_type};base64,{block.source.data}"
        part = {"type": "file", "file": {"filename": block.title or "document", "file_data": data}}
    else:
        source = block.source
        url = source.url if isinstance(source, UrlSource) else f"data:{source.media_type};base64,{source.data}"
        part = {"type": "image_url", "image_url": {"url": url}}
    return _marked(part, block.cache_control)


def _call(block: ToolUseBlock) -> dict[str, Any]:
    function = {"name": block.name, "arguments": bytes(block.input).decode()}
    return _marked({"id": block.id, "type": "function", "function": function}, block.cache_control)


def _result(block: ToolResultBlock) -> dict[str, Any]:
    content = block.content if isinstance(block.content, str) else _content(block.content)
    if block.is_error:
        content = _ERROR + content if isinstance(content, str) else [{"type": "text", "text": _ERROR}, *content]
    return _marked({"role": "tool", "tool_call_id": block.tool_use_id, "content": content}, block.cache_control)


def _tool(given: Raw, index: int) -> dict[str, Any]:
    tool = read_tool(given, index)
    function: dict[str, Any] = {"name": tool.name, "parameters": tool.input_schema}
    if tool.description is not None:
        function["description"] = tool.description
    if tool.strict is not None:
        function["strict"] = tool.strict
    return _marked({"type": "function", "function": function}, tool.cache_control)


def _choice(body: MessagesBody) -> Mapping[str, Any]:
    choice = body.tool_choice
    if choice is None:
        return {}
    if isinstance(choice, NoChoice):
        return {"tool_choice": "none"}
    fields: dict[str, Any] = {"parallel_tool_calls": False} if choice.disable_parallel_tool_use else {}
    if isinstance(choice, ToolChoice):
        return {"tool_choice": {"type": "function", "function": {"name": choice.name}}, **fields}
    return {"tool_choice": "required" if isinstance(choice, AnyChoice) else "auto", **fields}


def _marked(part: dict[str, Any], cache_control: Raw) -> dict[str, Any]:
    """Keep the mark that ends a prefix worth caching: it changes no answer, and servers that cache by it know it so."""
    return part if bytes(cache_control) == _NULL else {**part, "cache_control": cache_control}
