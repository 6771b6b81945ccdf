"""A language model's words and token chances, read as one of the labels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rheostat.types.text import normalise_text

_QUOTES = " \t\r\n\"'`*“”‘’「」《》【】[](){}<>"
_STOPS = _QUOTES + ".,:;!?。，：；！？-—"


def match_label(text: str, labels: Sequence[str]) -> str | None:
    """Return the label `text` names: it is one, or begins with one and goes on with something that is no part of a
    word.

    Letter case, quotes and full-width forms do not matter. Of two labels that fit, the longer is meant.
    """
    said = normalise_text(text).strip(_STOPS)
    for label in sorted(labels, key=len, reverse=True):
        name = normalise_text(label).strip(_STOPS) or normalise_text(label)
        if said == name:
            return label
        if said.startswith(name) and not _goes_on(said[len(name) :]):
            return label
    return None


def scores_from_logprobs(tokens: Sequence[Any], labels: Sequence[str]) -> dict[str, float] | None:
    """Return the distribution over `labels` that the alternatives of the answer's tokens give, or None if they give
    none.

    The tokens are walked from the first. At each, every alternative that fits just one label adds its probability
    (times that of the tokens chosen before it) to that label. An alternative that fits several labels with a common
    beginning is followed if it was the chosen one, else its probability is shared between them evenly. Beside a chosen
    token in small letters, one capital letter is a word of its own ("I think", not "irrelevant") and belongs to no
    small-letter label that it only begins. A chosen token of quotes or white space only is stepped over. What belongs
    to no label is left out, and the rest is brought to sum 1.

    Args:
        tokens: `choices[0].logprobs.content` of a chat completion: `token`, `logprob`, perhaps `bytes`, `top_logprobs`.
    """
    names = {label: _fold(label.encode("utf-8", "surrogatepass")) for label in labels}
    small = {label for label in labels if _is_small(label.encode("utf-8", "surrogatepass"))}
    mass = dict.fromkeys(labels, 0.0)
    alive, path, prefix = list(labels), 1.0, b""
    for position in tokens:
        if not isinstance(position, Mapping):
            return None
        chosen, followed = _token(position), False
        here, before = path, prefix
        for token, chance in _alternatives(position).items():
            grown = _fold(before + token)
            fitting = _fitting(grown, names, alive)
            if token == chosen and (not grown or len(fitting) > 1):
                followed, path, prefix, remaining = True, here * chance, before + token, fitting
            elif grown:
                if len(grown) == 1 and _is_small(before + chosen) and not _is_small(before + token):
                    fitting = [label for label in fitting if names[label] == grown or label not in small]
                for label in fitting:
                    mass[label] += here * chance / len(fitting)
        if not followed:
            break
        alive = remaining
    else:  # the answer ended where it was still followed
        complete = [label for label in alive if names[label] == _fold(prefix)]
        for label in complete or (alive if _fold(prefix) else ()):
            mass[label] += path / len(complete or alive)
    total = math.fsum(mass.values())
    if not total > 0.0:
        return None
    return {label: value / total for label, value in mass.items()}


def _fitting(grown: bytes, names: Mapping[str, bytes], alive: Sequence[str]) -> list[str]:
    """Return the labels that begin with `grown`, else the longest label that `grown` names and then goes beyond."""
    beginning = [label for label in alive if names[label].startswith(grown)]
    if beginning:
        return beginning
    ended = [
        label
        for label in alive
        if grown.startswith(names[label]) and not _goes_on(grown[len(names[label]) :].decode("utf-8", "replace"))
    ]
    return [max(ended, key=len)] if ended else []


def _alternatives(position: Mapping[str, Any]) -> dict[bytes, float]:
    found: dict[bytes, float] = {}
    listed = position.get("top_logprobs")
    for each in [position, *(listed if isinstance(listed, list) else ())]:
        value = each.get("logprob") if isinstance(each, Mapping) else None
        if isinstance(value, int | float) and not isinstance(value, bool) and value <= 0.0:
            found[_token(each)] = math.exp(value)
    return found


def _token(entry: Mapping[str, Any]) -> bytes:
    raw = entry.get("bytes")
    if isinstance(raw, list) and all(isinstance(each, int) and 0 <= each < 256 for each in raw):
        return bytes(raw)
    return str(entry.get("token", "")).encode("utf-8", "surrogatepass")


def _fold(raw: bytes) -> bytes:
    """Fold letter case and strip the beginning; bytes of a character that is not complete yet are kept."""
    text = raw.decode("utf-8", "surrogateescape").lstrip(_QUOTES).casefold()
    return text.encode("utf-8", "surrogateescape")


def _is_small(raw: bytes) -> bool:
    return raw.decode("utf-8", "replace").lstrip(_QUOTES)[:1].islower()


def _goes_on(rest: str) -> bool:
    return bool(rest) and (rest[0].isalnum() or rest[0] == "_") and not "\u3400" <= rest[0] <= "\u9fff"
