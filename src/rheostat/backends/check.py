"""The contract, tried on a model before it takes traffic."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from rheostat.backends.reply import SUM_TOLERANCE
from rheostat.clock import Clock, SystemClock
from rheostat.errors import ContractError, ModelError
from rheostat.pool.backend import Backend, Describable, ModelSettings, RemoteBackend, Reply, Row
from rheostat.types import Prediction

TEXT_PROBES: tuple[str, ...] = (
    "The delivery was late and the box was broken.",
    "",
    "这个产品的质量很好，但是送货太慢了。",
    "🙂👍 ok",
    "word " * 2_000,
)
DESCRIBE_S = 3.0
"""Seconds that a server may take at load to say what it serves."""
_TIMED_RUNS = 3
_SHOWN = 40
_EXCUSED = frozenset({"input_refused", "input_too_large"})
_CLOSE = 1e-3


class ContractReport(NamedTuple):
    """What the check found. `row_s` is the median of single calls in seconds, `slowest_s` the longest of them;
    both are 0 when nothing was tried, and `skipped` then says why."""

    name: str
    rows: int = 0
    row_s: float = 0.0
    slowest_s: float = 0.0
    skipped: str = ""


def check_contract(
    name: str,
    backend: Backend | RemoteBackend,
    settings: ModelSettings,
    probes: Sequence[Row] | None = None,
    clock: Clock | None = None,
    briefly: bool = False,
) -> ContractReport:
    """Try the model on a few rows and time it.

    Rows are `probes`, else the setting `probe`, else what the backend names itself, else texts: short, empty,
    Chinese, emoji and 10,000 characters; `briefly` tries the first of them only, twice, and does not time it. Checked: one
    reply a row, in order; a declared label; a confidence in [0, 1] or none; scores that are finite, sum to 1 within 0.001
    and have their maximum at the label; the same answer twice, alone and in a batch. A row may be refused as such
    (`input_refused`, `input_too_large`).

    A model that says nothing about its rows and can take no text is passed over, and the report says so; so is one
    elsewhere, which `check_remote_contract` tries.

    Raises:
        ContractError: with everything that was found.
    """
    if not isinstance(backend, Backend):
        return ContractReport(name, skipped="a remote model is not called at load")
    rows, guessed = _probe_rows(backend, settings, probes)
    rows = rows[:1] if briefly else rows
    if not rows:
        return ContractReport(name, skipped="no probe row is known: set probe")
    clock = clock or SystemClock()
    batch = ask(backend, rows)
    wrong = any(isinstance(reply, ModelError) and reply.kind == "bad_output" for reply in batch)
    if guessed and batch and not wrong and all(isinstance(reply, ModelError) for reply in batch):
        return ContractReport(name, skipped=f"it takes no text ({batch[0]}): set probe to a row that it takes")
    problems = _problems(batch, rows, backend.labels)
    if briefly:
        _refuse(name, problems + _differences(batch, ask(backend, rows), rows, "asked twice"))
        return ContractReport(name, 1)
    singles: list[Reply] = []
    times: list[float] = []
    for row in rows:
        for _ in range(_TIMED_RUNS):
            start = clock.monotonic()
            answer = ask(backend, [row])
            times.append(clock.monotonic() - start)
        singles += answer
    problems += _differences(batch, ask(backend, rows), rows, "asked twice")
    apart = _differences(batch, singles, rows, "alone and in a batch")
    if apart and getattr(settings, "chunk", 1) > 1:
        apart.append("a file made by dynamic 8-bit quantisation answers so: set chunk: 1")
    problems += apart
    _refuse(name, problems)
    return ContractReport(name, len(rows), median(times), max(times))


def warm_up(name: str, backend: Backend, settings: ModelSettings) -> None:
    """Ask a model that kept the contract before, and was loaded again, one row: its first answer is the slowest.

    Raises:
        ContractError: it breaks the contract now.
    """
    rows, guessed = _probe_rows(backend, settings, None)
    replies = ask(backend, rows[:1])
    if not (guessed and isinstance(replies[0], ModelError) and replies[0].kind != "bad_output"):  # it takes no text
        _refuse(name, _problems(replies, rows[:1], backend.labels))


async def check_remote_contract(
    name: str, backend: RemoteBackend, settings: ModelSettings, timeout_s: float = 10.0
) -> ContractReport:
    """Hold what a model's server says of it to the config, where it says something, and try the model on the rows of its
    setting `probe`; without one it is not called, so that a start never hangs on an upstream that is down.

    The replies are checked as in `check_contract`; the same answer twice is not asked for. A call that fails for
    another reason than the contract (no connection, no time) is no finding.

    Raises:
        ContractError: with everything that was found.
    """
    if isinstance(backend, Describable):
        try:
            await backend.adescribe(DESCRIBE_S)
        except ContractError as error:
            _refuse(name, [str(error)])
        except ModelError as error:
            return ContractReport(name, skipped=f"it could not be asked: {error}")
    rows = settings.probe_rows
    if not rows:
        return ContractReport(name, skipped="a remote model is tried only on its own probe")
    try:
        replies = await backend.apredict(rows, timeout_s)
    except ModelError as error:
        replies = [error] * len(rows)
    down = [reply for reply in replies if isinstance(reply, ModelError) and reply.kind not in ("bad_output", "crashed")]
    if len(replies) == len(rows) and down:
        return ContractReport(name, skipped=f"it could not be asked: {down[0]}")
    _refuse(name, _problems(replies, rows, backend.labels))
    return ContractReport(name, len(rows))


def probe_rows(backend: Backend, settings: ModelSettings) -> list[Row]:
    """Return the rows that the model is tried on."""
    return _probe_rows(backend, settings, None)[0]


def _probe_rows(backend: Backend, settings: ModelSettings, probes: Sequence[Row] | None) -> tuple[list[Row], bool]:
    if probes is not None:
        return list(probes), False
    if settings.probe_rows:
        return settings.probe_rows, False
    features = getattr(settings, "features", ())
    if not hasattr(backend, "probes"):
        return ([dict.fromkeys(features, value) for value in (0.0, 1.0)], False) if features else (list(TEXT_PROBES), True)
    return list(TEXT_PROBES if backend.probes is None else backend.probes), False


def ask(backend: Backend, rows: Sequence[Row]) -> list[Reply]:
    """Return the model's replies; what it raises is the reply to each row."""
    try:
        replies = list(backend.predict(rows))
    except ModelError as error:
        return [error] * len(rows)
    except Exception as error:  # a backend of the user's own may raise anything
        return [ModelError("crashed", f"{type(error).__name__}: {error}")] * len(rows)
    return replies


def _problems(replies: Sequence[Any], rows: Sequence[Row], labels: tuple[str, ...] | None) -> list[str]:
    if len(replies) != len(rows):
        return [f"{len(rows)} rows gave {len(replies)} replies"]
    found: list[str] = []
    for row, reply in zip(rows, replies, strict=True):
        problem = _problem(reply, labels)
        if problem:
            found.append(f"row {_shown(row)}: {problem}")
    return found


def _problem(reply: Any, labels: tuple[str, ...] | None) -> str:
    if isinstance(reply, ModelError):
        return "" if reply.kind in _EXCUSED else f"{reply.kind}: {reply}"
    if not isinstance(reply, Prediction):
        return f"expected a Prediction or a ModelError, got {type(reply).__name__}"
    if not isinstance(reply.label, str) or not reply.label.strip():
        return f"expected a label, got {reply.label!r}"
    if labels is not None and reply.label not in labels:
        return f"label {reply.label!r} is none of {list(labels)}"
    confidence = reply.confidence
    if confidence is not None and not (isinstance(confidence, int | float) and 0.0 <= confidence <= 1.0):
        return f"expected a confidence in [0, 1] or none, got {confidence!r}"
    return "" if reply.scores is None else _scores_problem(reply.label, reply.scores)


def _scores_problem(label: str, scores: Mapping[str, float]) -> str:
    if not scores or not all(isinstance(value, int | float) and math.isfinite(value) for value in scores.values()):
        return "expected finite scores"
    total = math.fsum(scores.values())
    if abs(total - 1.0) > SUM_TOLERANCE or min(scores.values()) < 0.0:
        return f"expected scores that are not negative and sum to 1, got a sum of {total:.6g}"
    if scores.get(label, 0.0) < max(scores.values()) - 1e-6:
        return f"label {label!r} is not the one with the highest score"
    return ""


def _differences(first: Sequence[Reply], second: Sequence[Reply], rows: Sequence[Row], how: str) -> list[str]:
    if len(first) != len(second) or len(first) != len(rows):
        return [f"{how}: {len(first)} and {len(second)} replies for {len(rows)} rows"]
    return [
        f"row {_shown(row)}: {how} it answers {_said(one)} and {_said(other)}"
        for row, one, other in zip(rows, first, second, strict=True)
        if not _same(one, other)
    ]


def _same(one: Reply, other: Reply) -> bool:
    if not isinstance(one, Prediction) or not isinstance(other, Prediction):
        return isinstance(one, ModelError) and isinstance(other, ModelError) and one.kind == other.kind
    if one.label != other.label or (one.confidence is None) != (other.confidence is None):
        return False
    return one.confidence is None or other.confidence is None or abs(one.confidence - other.confidence) <= _CLOSE


def _said(reply: Reply) -> str:
    return f"{reply.label!r} ({reply.confidence})" if isinstance(reply, Prediction) else getattr(reply, "kind", repr(reply))


def _shown(row: Row) -> str:
    text = repr(row)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _refuse(name: str, problems: Sequence[str]) -> None:
    if problems:
        raise ContractError(
            "\n".join([f"model {name} breaks the contract and takes no traffic:", *(f"  {p}" for p in problems)])
        )
