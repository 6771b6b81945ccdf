"""What records and later judgements say of one model: how sure it was, and whether it was right."""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rheostat.chance import chance
from rheostat.lab.records import read_feedback, read_routed
from rheostat.types import Feedback, RouteRecord

FIT_SHARE = 0.7
"""The share of the judged answers that a calibrator is fitted on; a hash of the request id deals them out."""


class Judged(NamedTuple):
    """The confidence of each judged answer, in [0, 1], whether it was right, and whether it is one of those to fit on."""

    confidence: NDArray[np.float64]
    right: NDArray[np.bool_]
    fit: NDArray[np.bool_]


def judged_answers(path: str | os.PathLike[str], model: str) -> Judged:
    """Return the answers that `model` alone gave, that had a confidence, and that were judged later.

    A reward of 0.5 or more counts as right. Of conversations only rewards count: their records do not hold the answers.

    Raises:
        StoreError: the file is absent, damaged, or holds no records.
        OSError: it cannot be read.
    """
    feedback = read_feedback(path)
    found: list[tuple[float, bool, bool]] = []
    for record in read_routed(path):
        judgement = feedback.get(record.id)
        if judgement is None or record.selected_model != model or len(record.weights) > 1 or record.cache:
            continue
        right = _right(record, judgement)
        sure = next((o.confidence for o in record.outcomes if (o.served_by or o.model) == model and o.ok), None)
        if right is not None and sure is not None:
            found.append((sure, right, chance("calibrate", record.id) < FIT_SHARE))
    columns = list(zip(*found, strict=True)) or [(), (), ()]
    return Judged(np.array(columns[0], np.float64), np.array(columns[1], np.bool_), np.array(columns[2], np.bool_))


def _right(record: RouteRecord, judgement: Feedback) -> bool | None:
    if judgement.reward is not None:
        return judgement.reward >= 0.5
    is_chat = record.input is not None and record.input.kind == "chat"
    if judgement.label is None or is_chat:
        return None
    return judgement.label == record.label
