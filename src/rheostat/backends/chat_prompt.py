"""What a language model is asked: its instruction and one row, as the messages of a chat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from rheostat.backends.upstream import encode
from rheostat.pool.backend import ModelSettings, Row
from rheostat.types import text_of
from rheostat.types.text import well_formed

_CHOICE = "Classify the user's text. Answer with exactly one of these labels and nothing else: {labels}"


class Prompted(Protocol):
    """Settings with a system prompt."""

    @property
    def prompt(self) -> str: ...


class ChatSettings(ModelSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a language model may be told, wherever it runs."""

    prompt: str = ""
    max_tokens: int = 16


def instruction(settings: Prompted, labels: Sequence[str]) -> str:
    """Return the system prompt: the configured one, else that which asks for one of `labels`; empty without either."""
    return settings.prompt or (_CHOICE.format(labels=", ".join(labels)) if labels else "")


def messages(system: str, row: Row) -> list[Mapping[str, Any]]:
    """Return the chat that asks about one row: its text, or all of it as JSON where it has none.

    Raises:
        ModelError: `input_refused` when the row is nothing JSON can carry.
    """
    text = text_of(row) or (row if isinstance(row, str) else encode(row).decode())
    said: list[Mapping[str, Any]] = [{"role": "user", "content": str(well_formed(text))}]
    return [{"role": "system", "content": system}, *said] if system else said
