"""What a server's output tensor says of each row."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rheostat.backends.reply import as_reply, bad_output
from rheostat.errors import ModelError
from rheostat.pool.backend import Reply
from rheostat.tensors import Tensor


def read_answers(tensor: Tensor, labels: Sequence[str] | None, rows: int, *, softmax: bool = False) -> list[Reply]:
    """Read an output tensor as one answer for each of `rows` rows.

    Raises:
        ModelError: `bad_output` when it does not have so many.
    """
    if rows == 1:
        return [read_answer(tensor, labels, softmax=softmax)]
    size, rest = divmod(len(tensor.values), rows)
    if rest or not size or not tensor.shape or tensor.shape[0] != rows:
        raise bad_output(f"{rows} rows in {tensor.name!r}", list(tensor.shape))
    return [
        read_answer(tensor._replace(values=tensor.values[at : at + size]), labels, softmax=softmax)
        for at in range(0, rows * size, size)
    ]


def read_answer(tensor: Tensor, labels: Sequence[str] | None, *, softmax: bool = False) -> Reply:
    """Read one row's values as a label, or as the probabilities (or logits) of `labels`."""
    values = tensor.values
    if tensor.datatype == "BYTES" and not softmax:
        return as_reply(values[0], labels) if len(values) == 1 else bad_output("one label", values)
    if not tensor.is_float:
        return bad_output("floats" if softmax else "floats, or one label as BYTES", f"{tensor.datatype} {values}")
    if not labels:
        return ModelError("misconfigured", f"{tensor.name!r} holds numbers, and no `labels` say whose they are")
    if len(values) != len(labels):
        return bad_output(f"one number for each of the labels {list(labels)}", values)
    if not all(map(math.isfinite, values)):
        return bad_output(f"finite numbers in {tensor.name!r}", values)
    return as_reply(dict(zip(labels, _softmax(values) if softmax else values, strict=True)), labels)


def _softmax(values: Sequence[float]) -> list[float]:
    largest = max(values)
    parts = [math.exp(value - largest) for value in values]
    total = math.fsum(parts)
    return [part / total for part in parts]
