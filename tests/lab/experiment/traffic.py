"""Small tables with meta fields, and what one policy served on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
from lab_tables import columns, table

from rheostat.lab.experiment import Served, Traffic
from rheostat.lab.outcomes import ModelColumns, OutcomesTable
from rheostat.lab.replay import replay
from rheostat.policies import parse_policy


def with_meta(made: OutcomesTable, rows: Sequence[Mapping[str, Any] | None]) -> OutcomesTable:
    """The table with a meta mapping per row."""
    texts = [None if row is None else msgspec.json.encode(row).decode() for row in rows]
    return replace(made, meta=np.array(texts, dtype=object))


def scored(chance_of_yes: Sequence[float], **given: Any) -> ModelColumns:
    """A model with two labels, given its probability of the second."""
    yes = np.array(chance_of_yes)
    scores = np.stack([1.0 - yes, yes], axis=1)
    return columns(scores.argmax(axis=1).tolist(), scores.max(axis=1).tolist(), scores=scores, **given)


def ranked(truth: Sequence[int], chance_of_yes: Sequence[float], users: Sequence[str | None] = ()) -> OutcomesTable:
    """One model's scores over users' rows, and a second model that knows nothing."""
    made = table(truth, {"ranker": scored(chance_of_yes), "blind": scored([0.5] * len(truth))})
    return with_meta(made, [{"user": user} if user is not None else {} for user in users]) if users else made


def served(made: OutcomesTable, policy: Any) -> Served:
    """What a policy, written as in a config, serves on every row."""
    return Served.of(replay(parse_policy(policy), made), Traffic(made))
