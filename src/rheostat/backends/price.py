"""What a call costs by the tokens it took."""

from __future__ import annotations

from math import isfinite
from typing import Any

import msgspec
from msgspec import Struct


class Price(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The price of a million tokens, of those that are read (`input`) and of those that are written (`output`), in the unit
    of the models' costs."""

    input: float
    output: float

    def __post_init__(self) -> None:
        for name, value in (("input", self.input), ("output", self.output)):
            if not (isfinite(value) and value >= 0.0):
                raise ValueError(f"`{name}` must be a finite number, 0 or more, got {value:g}")

    def of(self, completion: Any) -> float | None:
        """Return what a completion costs; None where it does not tell its usage."""
        try:
            usage = _decode(completion).usage if isinstance(completion, bytes) else None
        except msgspec.DecodeError:
            return None
        if usage is None or usage.prompt_tokens < 0 or usage.completion_tokens < 0:
            return None
        return (self.input * usage.prompt_tokens + self.output * usage.completion_tokens) / 1e6


class _Usage(Struct):
    prompt_tokens: int
    completion_tokens: int = 0


class _Completion(Struct):
    usage: _Usage | None = None


_decode = msgspec.json.Decoder(_Completion).decode
