"""How sure a language model was of its answer, by the chances of the answer's tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from rheostat.types import usable_confidence

TokenConfidence = Literal["mean_logprob", "margin"]
"""`mean_logprob`: the geometric mean of the tokens' probabilities; `margin`: the mean distance between the two likeliest
tokens of a place. Source: Gupta et al., "Language Model Cascades: Token-level uncertainty and beyond", ICLR 2024."""
NEEDED: Mapping[TokenConfidence, int] = {"mean_logprob": 0, "margin": 2}
"""How many alternatives of each token have to be asked for."""


def confidence_of(tokens: Sequence[Any], kind: TokenConfidence) -> float | None:
    """Return the confidence in [0, 1]; None where a token's chances are not told, or are none.

    Args:
        tokens: `choices[0].logprobs.content` of a chat completion: `logprob`, and `top_logprobs` for a margin.
    """
    values = [_logprob(token) if kind == "mean_logprob" else _margin(token) for token in tokens]
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None
    mean = math.fsum(known) / len(known)
    return usable_confidence(math.exp(mean) if kind == "mean_logprob" else mean)


def _logprob(token: Any) -> float | None:
    value = token.get("logprob") if isinstance(token, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value <= 0.0:
        return None
    return float(value)


def _margin(token: Any) -> float | None:
    listed = token.get("top_logprobs") if isinstance(token, Mapping) else None
    chances = [_logprob(each) for each in listed] if isinstance(listed, list) else []
    known = sorted((math.exp(chance) for chance in chances if chance is not None), reverse=True)
    if len(known) < 2 or len(known) < len(chances):
        return None
    return known[0] - known[1]
