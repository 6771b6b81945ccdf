"""How sure a language model was of its answer, by the chances of the answer's tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from rheostat.types import usable_confidence

TokenConfidence = Literal["mean_logprob", "margin", "entropy"]
"""`mean_logprob`: the geometric mean of the tokens' probabilities; `margin`: the mean distance between the two likeliest
tokens of a place; `entropy`: 1 less the mean entropy of a place's likeliest tokens, what they leave counted as one more,
as a share of the most it can be. Source: Gupta et al., "Language Model Cascades: Token-level uncertainty and beyond", ICLR
2024."""
NEEDED: Mapping[TokenConfidence, int] = {"mean_logprob": 0, "margin": 2, "entropy": 5}
"""How many alternatives of each token have to be asked for."""


def confidence_of(tokens: Sequence[Any], kind: TokenConfidence) -> float | None:
    """Return the confidence in [0, 1]; None where a token's chances are not told, or are none.

    Args:
        tokens: `choices[0].logprobs.content` of a chat completion: `logprob`, and `top_logprobs` but for `mean_logprob`.
    """
    read = _READ[kind]
    values = [read(token) for token in tokens]
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


def _likeliest(token: Any) -> list[float]:
    """Return the probabilities of a place's likeliest tokens, two or more, falling; none where they are not told."""
    listed = token.get("top_logprobs") if isinstance(token, Mapping) else None
    chances = [_logprob(each) for each in listed] if isinstance(listed, list) else []
    known = sorted((math.exp(chance) for chance in chances if chance is not None), reverse=True)
    return known if len(known) > 1 and len(known) == len(chances) else []


def _margin(token: Any) -> float | None:
    known = _likeliest(token)
    return known[0] - known[1] if known else None


def _entropy(token: Any) -> float | None:
    known = _likeliest(token)
    if not known:
        return None
    told = math.fsum(known)
    parts = [*known, max(0.0, 1.0 - told)]
    total = max(1.0, told)  # rounded chances may add up to a little more
    spread = -math.fsum(part / total * math.log(part / total) for part in parts if part > 0.0)
    return 1.0 - min(1.0, spread / math.log(len(parts)))


_READ: Mapping[TokenConfidence, Callable[[Any], float | None]] = {
    "mean_logprob": _logprob, "margin": _margin, "entropy": _entropy,
}  # fmt: skip
