"""A conversation between requests: taken apart, put together, and kept within its bounds. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, Struct, structs

from rheostat.sessions.store import Change, Kept
from rheostat.types import Chat

_messages = msgspec.json.Decoder(list[Raw]).decode
_KEPT = ("content", "tool_calls", "function_call")
_INSTRUCTIONS = frozenset(("system", "developer"))
_SLACK = 32  # the digits of `dropped`


class Turn(Struct, frozen=True, omit_defaults=True):
    """What a client brought (the first `asked` of `messages`) and what was answered. `id` is the client's name for it, if it
    has one; `model` answered."""

    messages: tuple[Raw, ...]
    asked: int = 0
    id: str = ""
    model: str = ""


class Head(Struct, frozen=True, omit_defaults=True):
    """What stands for a whole conversation: its instructions, how many of its oldest turns are no longer kept, and a summary
    of the first `covered` turns of all. `states` are what signals keep of it, each of a fixed size."""

    system: tuple[Raw, ...] = ()
    dropped: int = 0
    summary: str = ""
    covered: int = 0
    states: Mapping[str, bytes] = {}


_head = msgspec.json.Decoder(Head).decode
_turn = msgspec.json.Decoder(Turn).decode


class Past(NamedTuple):
    """What was said before."""

    head: Head = Head()
    turns: tuple[Turn, ...] = ()


class Brought(NamedTuple):
    """The messages of a request: instructions at its beginning, and the others. It is `whole` where answers are among them:
    then the client holds the conversation itself, and nothing is put in front."""

    system: tuple[Raw, ...]
    rest: tuple[Raw, ...]
    roles: tuple[str, ...]

    @property
    def whole(self) -> bool:
        return "assistant" in self.roles


def brought(chat: Chat) -> Brought:
    """Take a request's messages apart."""
    raw = _messages(chat.fields["messages"])
    roles = tuple(message["role"] for message in chat["messages"])
    head = next((at for at, role in enumerate(roles) if role not in _INSTRUCTIONS), len(roles))
    return Brought(tuple(raw[:head]), tuple(raw[head:]), roles[head:])


def past_of(kept: Kept) -> Past:
    """Read what is stored.

    Raises:
        msgspec.MsgspecError: it is damaged, or of a later version.
    """
    return Past(_head(kept.head), tuple(_turn(turn) for turn in kept.turns)) if kept.head else Past()


def turns_in(said: Brought) -> tuple[list[Turn], tuple[Raw, ...]]:
    """Part a conversation that the client holds into its turns, and what follows the last answer."""
    turns: list[Turn] = []
    begin = 0
    for at, role in enumerate(said.roles):
        last = at + 1 == len(said.roles)
        if role == "assistant" and (last or said.roles[at + 1] != "assistant"):
            messages = said.rest[begin : at + 1]
            asked = sum(role != "assistant" for role in said.roles[begin : at + 1])
            turns.append(Turn(messages, asked))
            begin = at + 1
    return turns, said.rest[begin:]


def is_retry(past: Past, new: Sequence[Raw], marks: Mapping[str, str]) -> bool:
    """Return whether a request repeats the last turn: it brings the same, and says so: by the name that the turn had, or by
    the header with which OpenAI's clients count their tries."""
    if not past.turns:
        return False
    last = past.turns[-1]
    if tuple(map(bytes, last.messages[: last.asked])) != tuple(map(bytes, new)):
        return False
    name = turn_name(marks)
    tries = marks.get("x-stainless-retry-count", "")
    return (name != "" and name == last.id) or (tries.isdecimal() and int(tries) > 0)


def turn_name(marks: Mapping[str, str]) -> str:
    """Return the client's name for a turn: `idempotency-key`, else `x-request-id`; empty without one."""
    return (marks.get("idempotency-key") or marks.get("x-request-id") or "")[:128]


def answer_message(output: Any, label: str) -> Raw:
    """Return what was answered as a message that any model takes: of a completion the first choice's text and calls of
    tools, without what only its own server knows (thoughts, annotations); else the text."""
    if isinstance(output, bytes):
        choices = msgspec.json.decode(output).get("choices") or [{}]
        said = choices[0].get("message") or {}
        message = {name: said[name] for name in _KEPT if said.get(name) is not None}
        if "content" not in message:
            calls = "tool_calls" in message or "function_call" in message
            message["content"] = None if calls else said.get("refusal") or ""
    else:
        message = {"content": output if isinstance(output, str) and output else label}
    return Raw(msgspec.json.encode({"role": "assistant", **message}))


def bounded(
    head: Head, past: Past, kept: Kept, last: int, turns: Sequence[Turn], most_turns: int, most_bytes: int
) -> Change | None:
    """Return the change that keeps a conversation in its bounds by leaving out the oldest turns, none without those that
    begin with what its tools said; None where not even the newest has room.

    Args:
        past, kept: what is stored, read and as it is.
        last: how many of the stored turns stay if there is room; `turns` follow them.
    """
    fresh = [msgspec.json.encode(turn) for turn in turns]
    sizes = [*map(len, kept.turns[:last]), *map(len, fresh)]
    all_turns = (*past.turns[:last], *turns)
    room = most_bytes - len(msgspec.json.encode(head)) - _SLACK
    drop = max(0, len(sizes) - most_turns)
    total = sum(sizes[drop:])
    while total > room or (0 < drop < len(sizes) and _begins_with_tool(all_turns[drop])):
        if drop + 1 >= len(sizes):
            return None
        total -= sizes[drop]
        drop += 1
    head = structs.replace(head, dropped=head.dropped + drop)
    return Change(msgspec.json.encode(head), tuple(fresh[max(0, drop - last) :]), min(drop, last), last)


def _begins_with_tool(turn: Turn) -> bool:
    return bool(turn.messages) and msgspec.json.decode(turn.messages[0]).get("role") == "tool"
