"""Who wrote which part of an answer that several models wrote."""

from __future__ import annotations

from msgspec import Struct


class Span(Struct, frozen=True, omit_defaults=True, gc=False):
    """A part of an answer, told without its text: `tokens` as its model counts them, `cost` in the pool's unit, times in
    seconds. `why` says why it was this model's turn, `failure` (a key of `errors.FAILURES`) how it ended if not well."""

    model: str
    version: str
    tokens: int = 0
    why: str = ""
    elapsed_s: float = 0.0
    first_s: float | None = None
    cost: float = 0.0
    failure: str = ""
