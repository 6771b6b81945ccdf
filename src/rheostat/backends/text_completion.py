"""How a text goes on, and the vectors of texts: what decisions need of such an answer; the rest goes back as it came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from rheostat.backends.chat_stream import told_error
from rheostat.backends.token_confidence import TokenConfidence, confidence_of
from rheostat.errors import ModelError
from rheostat.pool.backend import Reply
from rheostat.types import Prediction


class _Choice(Struct):
    text: str
    finish_reason: str | None = None
    logprobs: dict[str, Any] | None = None


class _Completion(Struct):
    choices: list[_Choice] = []
    error: Any = None


class _Vector(Struct):
    embedding: list[Any] | str


class _Vectors(Struct):
    data: list[_Vector] = []
    error: Any = None


_completion = msgspec.json.Decoder(_Completion).decode
_vectors = msgspec.json.Decoder(_Vectors).decode
VECTORS = "vectors"
"""The label of an answer that is vectors."""


def read_text(body: bytes, confidence: TokenConfidence | None = None) -> Reply:
    """Return the first choice's text as label, its finish reason where a text goes on with nothing, and the whole as output.

    What is wrong is told without anything of the answer.
    """
    try:
        said = _completion(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return ModelError("bad_output", f"expected a completion of a text: {type(error).__name__}")
    if said.error is not None:
        return told_error({"error": said.error})
    if not said.choices:
        return ModelError("bad_output", "expected a completion of a text with a choice, got one without")
    choice = said.choices[0]
    tokens = _tokens(choice.logprobs or {}) if confidence is not None else None
    sure = confidence_of(tokens, confidence) if confidence is not None and tokens else None
    return Prediction(choice.text or choice.finish_reason or "stop", sure, None, body)


def read_vectors(body: bytes, wanted: int) -> Reply:
    """Return the whole as output if it has as many vectors as were `wanted`."""
    try:
        said = _vectors(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return ModelError("bad_output", f"expected vectors: {type(error).__name__}")
    if said.error is not None:
        return told_error({"error": said.error})
    if len(said.data) != wanted or not all(vector.embedding for vector in said.data):
        return ModelError("bad_output", f"expected {wanted} vectors, got {sum(bool(each.embedding) for each in said.data)}")
    return Prediction(VECTORS, None, None, body)


def _tokens(logprobs: dict[str, Any]) -> Sequence[Any]:
    """Return the tokens' chances as those of a chat completion; some servers tell them so in any case."""
    told = logprobs.get("content")
    if isinstance(told, list):
        return told
    chances, tops = logprobs.get("token_logprobs"), logprobs.get("top_logprobs")
    if not isinstance(chances, list):
        return ()
    beside = tops if isinstance(tops, list) and len(tops) == len(chances) else [None] * len(chances)
    return [
        {"logprob": chance, "top_logprobs": [{"logprob": each} for each in top.values()] if isinstance(top, dict) else None}
        for chance, top in zip(chances, beside, strict=True)
    ]
