"""A fitted router as a file that the `learned` scorer serves, and the lines of config that use it."""

from __future__ import annotations

import os
from collections.abc import Sequence

from rheostat.lab.learned_file import write_learned
from rheostat.lab.routers.data import RoutingData
from rheostat.lab.routers.learner import Fitted, Learner
from rheostat.signals.learned import LearnedCard


def save_router(
    router: Fitted,
    learner: Learner,
    data: RoutingData,
    path: str | os.PathLike[str],
    *,
    fitted_on: str,
    notes: Sequence[str] = (),
) -> LearnedCard:
    """Write the router with its card; what it says when served is what `predict` says, to float32.

    Raises:
        OSError: it cannot be written.
    """
    card = LearnedCard(
        meaning=learner.meaning, features=data.features, embedding=data.embedding, max_tokens=data.max_tokens,
        data_hash=data.data_hash, rows=len(data), fitted_on=fitted_on, notes=tuple(notes),
    )  # fmt: skip
    return write_learned(router.to_onnx(), card, path)


def config_lines(path: str, data: RoutingData, threshold: float, encoder: str | None = None) -> list[str]:
    """Return the lines of a config that serve the router: a signal, and the policy of a route."""
    weak, strong = data.names
    scorer = f"scorer: learned, path: {path}" + (f", encoder: {encoder}" if data.embedding else "")
    return [
        "signals:",
        f"  gain: {{{scorer}}}",
        "routes:",
        "  default:",
        f"    policy: {{binary: {{signal: gain, threshold: {threshold:.6g}, weak: {weak}, strong: {strong}}}}}",
    ]
