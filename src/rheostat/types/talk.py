"""A conversation that may be longer than a model can take, and what of it such a model gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Raw

from rheostat.types.chat import Chat
from rheostat.types.size import tokens_of

SUMMARY = "Summary of the conversation before the messages that follow:\n"


class Talk(Chat):
    """A whole conversation in parts: `system` (instructions), `turns` said before, oldest first, and what is `new`.

    Calls of tools and what came of them are never parted: turns that begin with what a tool said belong to the one before.
    With `cut` a model whose limit is smaller gets a part of it; `summary` then stands for the first `covered` turns, if that
    is not 0. `left_out` tells of every model that got a part how many turns it did not get.
    """

    __slots__ = ("_fitted", "covered", "cut", "left_out", "new", "summary", "system", "turns")

    def __init__(
        self,
        fields: Mapping[str, Raw],
        system: Sequence[Raw],
        turns: Sequence[Sequence[Raw]],
        new: Sequence[Raw],
        *,
        cut: bool = False,
        summary: str = "",
        covered: int = 0,
    ) -> None:
        self.system = tuple(system)
        self.turns = tuple(tuple(turn) for turn in turns)
        self.new = tuple(new)
        self.cut = cut
        self.summary = summary
        self.covered = covered
        self.left_out: dict[str, int] = {}
        self._fitted: dict[int, tuple[int, Chat]] = {}
        super().__init__(_with(fields, (*self.system, *(m for turn in self.turns for m in turn), *self.new)))

    @property
    def least(self) -> Chat:
        """What a model must hold: all of it, or where it may be cut the instructions, a summary, and what is new."""
        return self._part(self._starts()[-1]) if self.cut and self.turns else self

    def begins(self, limit: int, share: float = 1.0) -> int:
        """Return the first of the latest turns that have room in `limit` tokens beside the instructions and what is new (in
        that `share` of the room); the number of turns where none has."""
        starts = self._starts()
        least = tokens_of(self._part(starts[-1]))
        left = share * (limit - least)
        begin = starts[-1]
        for start, end in zip(reversed(starts[:-1]), reversed(starts[1:]), strict=True):
            left -= tokens_of(_chat({}, [message for turn in self.turns[start:end] for message in turn]))
            if left < 0.0:
                break
            begin = start
        return begin

    def fitted(self, limit: int, model: str = "") -> Chat:
        """Return what a model gets that can take `limit` tokens (0: any number)."""
        if not self.cut or not limit or not self.turns:
            return self
        if limit not in self._fitted:
            begin = 0 if tokens_of(self) <= limit else self.begins(limit)
            self._fitted[limit] = (begin, self._part(begin) if begin else self)
        begin, part = self._fitted[limit]
        if begin and model:
            self.left_out[model] = begin
        return part

    def summarised(self, summary: str, covered: int) -> None:
        """Let `summary` stand for the first `covered` turns."""
        self.summary, self.covered = summary, covered
        self._fitted.clear()

    def _starts(self) -> list[int]:
        """Return where turns may be parted: before each that does not begin with what a tool said. The last place is where
        that begins which always stays."""
        parts = [*self.turns, self.new]
        return [at for at, part in enumerate(parts) if at == 0 or not part or _role(part[0]) != "tool"]

    def _part(self, begin: int) -> Chat:
        system = list(self.system)
        if self.summary and begin:
            system = with_summary(system, self.summary)
        return _chat(self.fields, [*system, *(m for turn in self.turns[begin:] for m in turn), *self.new])


def with_summary(system: Sequence[Raw], summary: str) -> list[Raw]:
    """Return the instructions with a summary at their end: in the last message if that is a text, as many templates take one
    only, else as a message of its own."""
    told = SUMMARY + summary
    if system:
        last = msgspec.json.decode(system[-1])
        if isinstance(last.get("content"), str):
            return [*system[:-1], Raw(msgspec.json.encode({**last, "content": f"{last['content']}\n\n{told}"}))]
    return [*system, Raw(msgspec.json.encode({"role": "system", "content": told}))]


def _role(message: Raw) -> str:
    role: str = msgspec.json.decode(message)["role"]
    return role


def _with(fields: Mapping[str, Raw], messages: Sequence[Raw]) -> dict[str, Raw]:
    return {**fields, "messages": Raw(b"[" + b",".join(map(bytes, messages)) + b"]")}


def _chat(fields: Mapping[str, Raw], messages: Sequence[Raw]) -> Chat:
    return Chat(_with(fields, messages))
