"""What a language model is asked besides conversations: how texts go on, and the vectors of texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
from msgspec import Raw

from rheostat.types.chat import Chat, Kind


class Prompt(Chat):
    """Texts to go on with. As a mapping it looks like a conversation without messages, whose `text` are the texts, a line
    each; `inputs` are the texts, and for one that came as numbers of tokens how many they are."""

    __slots__ = ("inputs",)
    kind: ClassVar[Kind] = "completion"
    field: ClassVar[str] = "prompt"

    def __init__(self, fields: Mapping[str, Raw]) -> None:
        """Read the fields.

        Raises:
            ValueError: the texts are neither a text, nor a list of texts, nor numbers of tokens.
        """
        self.fields = fields
        self.inputs = _items(fields.get(self.field))
        if not self.inputs:
            raise ValueError(f"`{self.field}` is a text, a list of texts, or the numbers of their tokens")
        texts = [item for item in self.inputs if isinstance(item, str)]
        dict.__init__(self, kind=self.kind, text="\n".join(texts), messages=[], images=False, tools=False, format="")

    @property
    def spoken(self) -> str:
        """The longest text: each has a context of its own."""
        return max((item for item in self.inputs if isinstance(item, str)), key=len, default="")

    @property
    def ids(self) -> int:
        """The tokens of the longest text that came as numbers."""
        return max((item for item in self.inputs if isinstance(item, int)), default=0)

    @property
    def choices(self) -> int:
        """How many answers there will be."""
        return len(self.inputs) * super().choices


class Texts(Prompt):
    """Texts whose vectors are wanted."""

    __slots__ = ()
    kind: ClassVar[Kind] = "embedding"
    field: ClassVar[str] = "input"


def _items(given: Raw | None) -> list[str | int]:
    """Return each text, or how many tokens it is; nothing where it is neither."""
    try:
        said = None if given is None else msgspec.json.decode(given)
    except (msgspec.DecodeError, RecursionError):
        return []
    if not isinstance(said, list):
        said = [said]
    elif said and all(_is_id(each) for each in said):
        return [len(said)]
    items = [_item(each) for each in said]
    return [] if None in items else [item for item in items if item is not None]


def _item(said: Any) -> str | int | None:
    if isinstance(said, str):
        return said
    if isinstance(said, list) and said and all(_is_id(each) for each in said):
        return len(said)
    return None


def _is_id(said: Any) -> bool:
    return isinstance(said, int) and not isinstance(said, bool)
