"""A conversation whose answer has begun: a model is asked to go on from there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from rheostat.types.chat import Chat
from rheostat.types.request import text_of

_NOT_HERE = frozenset(("stream", "stream_options", "n", "logprobs", "top_logprobs"))
_ROOM = ("max_tokens", "max_completion_tokens")

Until = Callable[[str], int | None]
"""Given what a model has added so far, how much of it is kept because the answer is to end there; None: it goes on."""


class Begun(Chat):
    """A conversation and `said`, the beginning of its answer ("": nothing yet).

    A model that is asked this streams only what it adds; its reply is the whole answer, beginning with `said`. It adds up to
    `room` tokens (None: as many as it likes), and no more once `until` says that this is enough. With `chances` its
    completion tells those of the tokens that were added, and of so many alternatives to each.
    """

    __slots__ = ("chances", "room", "said", "until")

    def __init__(
        self, fields: Mapping[str, Raw], said: str, room: int | None = None, until: Until | None = None, chances: int = 0
    ) -> None:
        super().__init__(fields)
        self.said = said
        self.room = room
        self.until = until
        self.chances = chances


def begun(row: Any, said: str, room: int | None = None, until: Until | None = None, chances: int = 0) -> Begun:
    """Return the conversation `row` (or the one that a text or mapping opens) with the beginning of its answer.

    Everything that the client asked for stays, but what makes no sense of a part: how it streams, several choices, chances.

    Raises:
        ValueError: there is nothing in the row that a conversation could be about.
    """
    if isinstance(row, Chat):
        fields = {name: value for name, value in row.fields.items() if name not in _NOT_HERE}
    else:
        text = text_of(row)
        if not text:
            raise ValueError("a row without a text is no conversation")
        fields = {"messages": Raw(msgspec.json.encode([{"role": "user", "content": str(text)}]))}
    if room is not None:
        name = next((name for name in reversed(_ROOM) if name in fields), _ROOM[0])
        fields[name] = Raw(b"%d" % room)
    return Begun(fields, said, room, until, chances)


def room_of(row: Any) -> int | None:
    """Return how many tokens the answer to a conversation may have; None where the client does not say."""
    given = [row.asks(name) for name in _ROOM] if isinstance(row, Chat) else []
    known = [value for value in given if isinstance(value, int) and not isinstance(value, bool) and value >= 0]
    return min(known) if known else None


def stops_of(row: Any) -> tuple[str, ...]:
    """Return the texts that end the answer to a conversation, as its client says."""
    given = row.asks("stop") if isinstance(row, Chat) else None
    listed = [given] if isinstance(given, str) else given if isinstance(given, list) else []
    return tuple(text for text in listed if isinstance(text, str) and text)
