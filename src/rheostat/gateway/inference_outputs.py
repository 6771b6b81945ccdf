"""From answers to the tensors of an inference response."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence
from typing import Any

from rheostat.engine.engine import Served
from rheostat.errors import BadRequest, RheostatError
from rheostat.gateway.answer import RESULTS, error_of
from rheostat.tensors import Tensor
from rheostat.types.text import well_formed

OUTPUTS = {
    "label": "BYTES", "confidence": "FP32", "scores": "FP32", "labels": "BYTES", "model": "BYTES", "request_id": "BYTES",
    "error": "BYTES",
}  # fmt: skip
"""What can be asked for, with its datatype. `scores` is [n, labels], `labels` names its columns, all others are [n]."""
ALWAYS = ("label", "confidence")
"""What a request that names no outputs gets; `scores` and `labels` as well where there are any, and `error` where a row of
several failed."""


def check_wanted(names: Iterable[str]) -> None:
    """Raise `BadRequest` for an output that does not exist."""
    for name in names:
        if name not in OUTPUTS:
            raise BadRequest(f"there is no output {name[:80]!r}; there are {', '.join(OUTPUTS)}", "outputs")


def check_form(place: str, parameters: Container[str]) -> None:
    """Raise `BadRequest` when the parameters of the tensor at `place` ask for a form that is not served."""
    if "classification" in parameters or "shared_memory_region" in parameters:
        raise BadRequest("classification and tensors in shared memory are not served", place)


def tensors_of(served: Sequence[Served], wanted: Sequence[str], labels: Sequence[str]) -> list[Tensor]:
    """Return the outputs in the order of `wanted` (empty: the usual ones); `labels` come first among the columns of scores.

    A row without a score, a confidence or an answer has NaN there; a row that failed has an empty label.

    Raises:
        RheostatError: no row was answered, or one was not and `error` is not wanted; that of the first of them.
    """
    failed = [index for index, each in enumerate(served) if each.prediction is None]
    if failed and (len(failed) == len(served) or (wanted and "error" not in wanted)):
        raise served[failed[0]].error or RheostatError("neither an answer nor an error")
    scored = any(each.prediction is not None and each.prediction.scores is not None for each in served)
    names = wanted or (*ALWAYS, *(("scores", "labels") if scored else ()), *(("error",) if failed else ()))
    columns = _columns(served, labels) if "scores" in names or "labels" in names else []
    return [_tensor(name, served, columns) for name in names]


def told(served: Served) -> str:
    """Return what a client is told of a row that failed, with the place of its later answer if there will be one."""
    if served.error is None:
        return ""
    text = error_of(served.error, served.record.id).error.message
    promise = served.promise
    later = promise is not None and promise.state == "pending" and promise.id is not None
    return f"{text}; its answer will be at {RESULTS}{promise.id}" if later and promise is not None else text


def _tensor(name: str, served: Sequence[Served], columns: Sequence[str]) -> Tensor:
    shape: tuple[int, ...] = (len(served),)
    if name == "scores":
        shape = (len(served), len(columns))
        values: list[Any] = [value for each in served for value in _scores(each, columns)]
    elif name == "labels":
        shape, values = (len(columns),), [well_formed(label) for label in columns]
    elif name == "confidence":
        values = [_confidence(each) for each in served]
    else:
        values = [well_formed(_text(name, each)) for each in served]
    return Tensor(name, OUTPUTS[name], shape, values)


def _text(name: str, served: Served) -> str:
    if name == "label":
        return served.prediction.label if served.prediction is not None else ""
    if name == "model":
        return served.record.selected_model
    return served.record.id if name == "request_id" else told(served)


def _confidence(served: Served) -> float:
    confidence = served.prediction.confidence if served.prediction is not None else None
    return math.nan if confidence is None else confidence


def _columns(served: Sequence[Served], labels: Sequence[str]) -> list[str]:
    columns = dict.fromkeys(labels)
    for each in served:
        if each.prediction is not None and each.prediction.scores is not None:
            columns.update(dict.fromkeys(each.prediction.scores))
    return list(columns)


def _scores(served: Served, columns: Sequence[str]) -> list[float]:
    scores = served.prediction.scores if served.prediction is not None else None
    return [math.nan] * len(columns) if scores is None else [scores.get(label, 0.0) for label in columns]
