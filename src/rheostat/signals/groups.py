"""Groups of requests by example: which of them a text means the same as, and none where it is like none of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from rheostat.errors import ConfigError, Problem
from rheostat.pool.onnx_tokens import TextEncoder
from rheostat.signals.base import Scorer, ScorerSettings
from rheostat.signals.onnx_scorer import ScorerError
from rheostat.types import Request

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class GroupsScorerSettings(ScorerSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="groups"):
    """Says which of `groups`, each a list of example texts, a request belongs to: the signal `NAME.GROUP` of the nearest
    group is the similarity (above 0, at most 1) of the text to the mean of its examples, those of all others are 0. A text
    that is less similar than `threshold` to all of them is in none: then all are 0.

    `encoder` is a folder with `encoder.onnx` and `tokenizer.json`, a sentence encoder; texts are cut after `max_tokens`.
    `rheostat check --load` tells how well the examples tell the groups apart.
    """

    groups: dict[str, tuple[str, ...]]
    encoder: str
    threshold: float = 0.4
    max_tokens: Annotated[int, Meta(ge=8, le=8192)] = 128

    def __post_init__(self) -> None:
        if not self.groups:
            raise ValueError("`groups` is empty: name at least one, with examples")
        for name, examples in self.groups.items():
            if not name or any(mark in name for mark in "\"'\\"):
                raise ValueError(f"a name in `groups` has no quotes or backslashes and is not empty, got {name!r}")
            if not any(example.strip() for example in examples):
                raise ValueError(f"`groups` has no example of `{name}`; five or more are a good start")
        if not 0.0 < self.threshold <= 1.0:
            raise ValueError(f"`threshold` must lie above 0 and at most at 1, got {self.threshold}")

    def signals(self, name: str) -> tuple[str, ...]:
        """Return `name.GROUP` for each of the groups."""
        return tuple(f"{name}.{group}" for group in self.groups)

    def open(self, name: str, base: str) -> Scorer:
        """Load the encoder and embed the examples.

        Raises:
            ConfigError: the encoder is missing or none of its kind.
        """
        folder = Path(base, self.encoder)
        encoder = TextEncoder(folder / "encoder.onnx", folder / "tokenizer.json", self.max_tokens)
        examples = {group: [text for text in texts if text.strip()] for group, texts in self.groups.items()}
        try:
            embedded = [_together([encoder.embed(text) for text in texts]) for texts in examples.values()]
        except Exception as error:  # onnxruntime has a class of its own for every reason
            raise ConfigError([Problem("encoder", None, f"it cannot embed the examples: {error}")]) from error
        return GroupScorer(self.signals(name), tuple(examples), encoder, embedded, self.threshold)


class Telling(Struct, frozen=True):
    """How well examples tell their groups apart, each held to the means of all the others: of `judged` examples `right` were
    nearest to their own group, `none` were like no group, and `confused` counts (own, taken for)."""

    judged: int
    right: int
    none: int
    confused: Mapping[tuple[str, str], int]

    def lines(self) -> list[str]:
        """Return it in words."""
        if not self.judged:
            return ["too few examples to tell how well they tell the groups apart: give two or more of each"]
        told = [
            f"of {self.judged} examples, each left out in turn, {self.right} fall into their group and {self.none} into none"
        ]
        most = sorted(self.confused.items(), key=lambda item: -item[1])[:3]
        return told + [f"{count} of `{own}` would be taken for `{other}`" for (own, other), count in most]


class GroupScorer:
    """Compares a text with the mean of each group's examples. Source: nearest class mean, as in Snell et al., Prototypical
    Networks (2017)."""

    def __init__(
        self, names: tuple[str, ...], groups: tuple[str, ...], encoder: Any, embedded: Sequence[NDArray[np.float32]],
        threshold: float,
    ) -> None:  # fmt: skip
        self.names = names
        self.groups = groups
        self.threshold = threshold
        self._encoder = encoder
        self._embedded = embedded
        self._means = _together([_mean(each) for each in embedded])
        self._none = dict.fromkeys(names, 0.0)

    def score(self, request: Request) -> Mapping[str, float]:
        """Return the signals; a request without a text is in no group.

        Raises:
            ScorerError: the encoder failed.
        """
        if not request.text.strip():
            return self._none
        try:
            vector = self._encoder.embed(request.text)
        except Exception as error:  # onnxruntime has a class of its own for every reason
            raise ScorerError(f"signal {self.names[0]}: {type(error).__name__}: {str(error)[:200]}") from error
        return self.compared(vector[0])

    def compared(self, vector: NDArray[np.float32]) -> Mapping[str, float]:
        """Return the signals of a text by its embedding of length 1."""
        near = self._means @ vector
        best = int(near.argmax())
        similarity = float(near[best])
        if not similarity >= self.threshold:  # NaN is like nothing
            return self._none
        return {**self._none, self.names[best]: min(1.0, similarity)}

    def quality(self) -> Telling:
        """Return how well the examples tell the groups apart."""
        judged = right = none = 0
        confused: Counter[tuple[str, str]] = Counter()
        for own, rows in enumerate(self._embedded):
            for index in range(len(rows)) if len(rows) > 1 else ():
                means = self._means.copy()
                means[own] = _mean(_without(rows, index))[0]
                near = means @ rows[index]
                best = int(near.argmax())
                judged += 1
                if near[best] < self.threshold:
                    none += 1
                elif best == own:
                    right += 1
                else:
                    confused[self.groups[own], self.groups[best]] += 1
        return Telling(judged, right, none, confused)


def _together(rows: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    import numpy as np

    return np.ascontiguousarray(np.concatenate(rows))


def _without(rows: NDArray[np.float32], index: int) -> NDArray[np.float32]:
    import numpy as np

    return np.delete(rows, index, axis=0)


def _mean(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the mean of the rows, of length 1, as a row."""
    import numpy as np

    mean = rows.mean(axis=0, keepdims=True)
    unit: NDArray[np.float32] = mean / max(float(np.linalg.norm(mean)), 1e-12)
    return unit
