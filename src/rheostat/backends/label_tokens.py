"""The chances of labels, from those of the tokens they are written in."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rheostat.backends.reply import bad_output
from rheostat.errors import ModelError

Tokens = tuple[int, ...]


class TokenChances:
    """What is known of the next token after some tokens of an answer: natural logarithms of probabilities, by token."""

    def __init__(self) -> None:
        self._known: dict[Tokens, dict[int, float]] = {}

    def learn(self, before: Tokens, position: Mapping[str, Any]) -> None:
        """Take in one position of an answer, which follows `before`: the chosen token (`id`, `logprob`) and `top_logprobs`.

        Raises:
            ModelError: `bad_output`: a chance is no number, as from a file whose weights are broken.
        """
        known = self._known.setdefault(before, {})
        for each in (*position.get("top_logprobs", ()), position):
            token, chance = each.get("id"), each.get("logprob")
            if isinstance(token, int) and isinstance(chance, int | float) and chance <= 0.0:
                known[token] = float(chance)
            elif each is position:
                raise bad_output("a token with its log probability", position)

    def of(self, tokens: Tokens) -> float | None:
        """Return the log probability that an answer begins with `tokens`; None where a part of it is not known."""
        total = 0.0
        for place, token in enumerate(tokens):
            chance = self._known.get(tokens[:place], {}).get(token)
            if chance is None:
                return None
            total += chance
        return total


def label_scores(labels: Sequence[str], written: Sequence[Tokens], chances: Sequence[float]) -> dict[str, float]:
    """Return the distribution over `labels`: the share of each in the probability of all.

    The probability of a label is that of its tokens one after another; where another label goes on from it, without that.

    Args:
        written: the tokens of each label.
        chances: the log probability that an answer begins with them.

    Raises:
        ModelError: `bad_output`: no label has a chance.
    """
    highest = max(chances)
    mass = {tokens: math.exp(chance - highest) for tokens, chance in zip(written, chances, strict=True)}
    for tokens, chance in sorted(mass.items(), key=lambda item: len(item[0])):
        shorter = [other for other in mass if other != tokens and tokens[: len(other)] == other]
        if shorter:
            longest = max(shorter, key=len)
            mass[longest] = max(0.0, mass[longest] - chance)
    total = math.fsum(mass.values())
    if not (math.isfinite(total) and total > 0.0):
        raise ModelError("bad_output", f"none of the labels {list(labels)} has a chance")
    return {label: mass[tokens] / total for label, tokens in zip(labels, written, strict=True)}
