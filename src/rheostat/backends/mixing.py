"""The distribution of the next token, mixed from those of several models. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

MixForm = Literal["linear", "product"]
"""`linear`: the weighted mean of the probabilities; `product`: their weighted geometric mean, made to sum to 1 (a product of
experts, Hinton 2002)."""


class Nexts(NamedTuple):
    """What one model tells of the next token: natural logarithms of the probabilities of its likeliest tokens, by token. Any
    other token has at most the least of them."""

    known: Mapping[int, float]

    @property
    def margin(self) -> float:
        """The distance between the probabilities of the two likeliest tokens, in [0, 1]."""
        first, *rest = sorted(self.known.values(), reverse=True)[:2]
        return math.exp(first) - (math.exp(rest[0]) if rest else 0.0)


class Mixed(NamedTuple):
    """The mixed distribution over the tokens that are known well enough. `certain` says that no other token can be likelier
    than the likeliest one here."""

    chances: Mapping[int, float]
    certain: bool

    @property
    def best(self) -> int:
        """The likeliest token; of equal ones the first."""
        return min(self.chances, key=lambda token: (-self.chances[token], token))


def mix(told: Sequence[Nexts], weights: Sequence[float], form: MixForm) -> Mixed:
    """Mix what models tell of the next token, with weights that sum to 1.

    What a model does not tell of a token is not guessed: it counts nothing in a linear mixture, and leaves the token out of
    a product. Whether that could change which token is the likeliest is worked out from the bounds (as in the threshold
    algorithm of Fagin et al. 2003).
    """
    parts = [
        (each.known, min(each.known.values()), weight) for each, weight in zip(told, weights, strict=True) if weight > 0.0
    ]
    tokens = {token for known, _, _ in parts for token in known}
    if form == "linear":
        raw = {token: sum(w * math.exp(known[token]) for known, _, w in parts if token in known) for token in tokens}
        most = {
            token: raw[token] + sum(w * math.exp(floor) for known, floor, w in parts if token not in known)
            for token in tokens
        }
        unseen = sum(w * math.exp(floor) for _, floor, w in parts)
    else:
        most = {token: math.exp(sum(w * known.get(token, floor) for known, floor, w in parts)) for token in tokens}
        raw = {token: value for token, value in most.items() if all(token in known for known, _, _ in parts)}
        unseen = math.exp(sum(w * floor for _, floor, w in parts))
    total = sum(raw.values())
    if not total > 0.0:
        return Mixed({}, False)
    best = max(raw.values())
    leader = min(token for token, value in raw.items() if value == best)
    certain = unseen <= best and all(value <= best for token, value in most.items() if token != leader)
    return Mixed({token: value / total for token, value in raw.items()}, certain)


def tempered(chances: Mapping[int, float], temperature: float) -> dict[int, float]:
    """Return the distribution at a temperature above 0: probabilities to the power 1/temperature, made to sum to 1."""
    top = max(chances.values())
    raw = {token: math.exp(math.log(chance / top) / temperature) for token, chance in chances.items() if chance > 0.0}
    total = sum(raw.values())
    return {token: value / total for token, value in raw.items()}


def drawn(chances: Mapping[int, float], at: float) -> int:
    """Return the token at the point `at`, in [0, 1), of the distribution, the likeliest first."""
    ordered = sorted(chances.items(), key=lambda item: (-item[1], item[0]))
    for token, chance in ordered:
        at -= chance
        if at < 0.0:
            return token
    return ordered[-1][0]
