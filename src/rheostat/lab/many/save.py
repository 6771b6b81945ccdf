"""A fitted predictor as a file that the `learned` scorer serves, one output a model, and the lines of config that use it."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from rheostat.lab.learned_file import write_learned
from rheostat.lab.many.choose import Chosen
from rheostat.lab.many.data import ManyData
from rheostat.lab.many.methods import Predictor
from rheostat.signals.learned import LearnedCard


def save_quality(
    predictor: Predictor, data: ManyData, path: str | os.PathLike[str], *, fitted_on: str, notes: Sequence[str] = ()
) -> LearnedCard:
    """Write the predictor with its card; what it says when served is what `predict` says, to float32.

    Raises:
        OSError: it cannot be written.
    """
    card = LearnedCard(
        meaning="quality", features=data.features, embedding=data.embedding, max_tokens=data.max_tokens,
        outputs=data.models, data_hash=data.data_hash, rows=len(data), fitted_on=fitted_on, notes=tuple(notes),
    )  # fmt: skip
    return write_learned(predictor.to_onnx(), card, path)


def quality_lines(path: str, data: ManyData, chosen: Chosen, encoder: str | None = None) -> list[str]:
    """Return the lines of a config: the signals, and the policy of a route; one model alone needs no signals."""
    policy = msgspec.json.encode(chosen.policy(data.models, "quality")).decode()
    route = ["routes:", "  default:", f"    policy: {policy}"]
    if not chosen.routes:
        return route
    outputs = msgspec.json.encode(data.models).decode()
    scorer = f"scorer: learned, path: {path}, outputs: {outputs}" + (f", encoder: {encoder}" if data.embedding else "")
    return ["signals:", f"  quality: {{{scorer}}}", *route]
