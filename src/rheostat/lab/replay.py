"""Replays a policy over an outcomes table: the same policy object, the same journey, simulated time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from msgspec import structs

from rheostat.engine.journey import Journey, Route
from rheostat.lab.outcomes import (
    ABSENT,
    FAILURE_KINDS,
    OK,
    Bools,
    Codes,
    Floats,
    Ints,
    ModelInfo,
    OutcomesTable,
)
from rheostat.policies import Policy, Rules, answering_of, models_of, steering_of, walk
from rheostat.resilience.holds import Holds
from rheostat.resilience.ladder import FallbackSettings, Link
from rheostat.resilience.spend import Spend, Spends
from rheostat.signals.base import AnswerScorer, Scorer
from rheostat.types import Attempt, Context, Failure, ModelView, Outcome, Prediction, Request

_BLOCK: Final = 20_000  # rows whose columns are turned into Python numbers at a time

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class ReplayResult:
    """What the policy did on every row of the table, row by row.

    `answered` is False where the request ended in an error (`error` says which) or had to be left out because the policy
    asked a model whose outcome was not recorded. `label` is -1 there. `called` and `cancelled` are rows x models. `trouble`
    says on which rows the policy itself failed and why; there the default model answered, and not the policy. `review` is
    True where the answer was marked for a person; `guess` is the pool's own label, also where another was said in its place.
    """

    table: OutcomesTable
    label: Ints
    confidence: Floats
    level: Codes
    cost: Floats
    latency_s: Floats
    weights: npt.NDArray[np.float32]
    called: Bools
    cancelled: Bools
    reason: npt.NDArray[np.object_]
    error: npt.NDArray[np.object_]
    by: npt.NDArray[np.object_]
    trouble: npt.NDArray[np.object_]
    review: Bools
    guess: Ints
    left_out: Mapping[str, int] = field(default_factory=dict)
    extra_labels: tuple[str, ...] = ()

    @property
    def answered(self) -> Bools:
        """Rows that ended with a label."""
        given: Bools = self.label >= 0
        return given

    @property
    def judged(self) -> Bools:
        """Rows that can be called right or wrong: answered and not left to a person, and the right label is known."""
        return self.answered & ~self.review & self.table.known

    @property
    def correct(self) -> Bools:
        """Rows answered rightly; read it only where `judged`."""
        right: Bools = self.judged & (self.label == self.table.truth)
        return right

    @property
    def failed(self) -> tuple[int, str]:
        """The number of rows on which the policy itself failed, and what it said on the first of them."""
        rows = np.flatnonzero(self.trouble != "")
        return len(rows), str(self.trouble[rows[0]]).removeprefix("router_unavailable: ") if len(rows) else ""

    def share(self, model: str) -> float:
        """Return the share of requests that called `model`."""
        return float(self.called[:, self.table.models.index(model)].mean()) if len(self.table) else float("nan")

    def counts(self) -> dict[str, int]:
        """Count what became of the rows: judged, answered without a right label to compare, and errors by kind."""
        unknown = self.answered & ~self.review & ~self.table.known
        counts = {
            "judged": int(self.judged.sum()),
            "for review": int(self.review.sum()),
            "no right label given": int(unknown.sum()),
        }
        for what in self.error[~self.answered]:
            counts[what] = counts.get(what, 0) + 1
        return {name: count for name, count in counts.items() if count or name == "judged"}

    def latency_quantiles(self, quantiles: Sequence[float] = (0.5, 0.95, 0.99)) -> tuple[float, ...]:
        """Return latency quantiles in seconds over the answered rows; NaN without any."""
        waits = self.latency_s[self.answered]
        if not len(waits):
            return tuple(float("nan") for _ in quantiles)
        return tuple(np.quantile(waits, quantiles, method="higher").tolist())


def replay(
    policy: Policy,
    table: OutcomesTable,
    *,
    fallback: FallbackSettings | None = None,
    default: str | None = None,
    scorers: Sequence[Scorer | AnswerScorer] = (),
    holds: Holds | None = None,
    spends: Sequence[Spend] = (),
    interval_s: float = 0.0,
    deadline_s: float = float("inf"),
    max_cost: float = float("inf"),
    progress: Progress | None = None,
) -> ReplayResult:
    """Let `policy` decide every row, in the table's order, with the recorded outcomes arriving after their latency.

    Calls made together overlap; a call that is still running when the request ends is cancelled, and its recorded cost
    counts in full. A row on which the policy asks a model without a recorded outcome is left out and counted.

    Args:
        fallback: the route's ladder. By default no rung is used, so that the policy itself is measured.
        default: the model that answers when the policy fails; by default the ladder's, else the policy's first.
        scorers: make the signals that the policy reads, of requests or of answers; the table must have kept its inputs.
        holds: the memory for hysteresis; a new one when None.
        spends: the budgets that the policy reads; they begin anew and move row by row.
        interval_s: seconds between arrivals, for the age of what is held.
        deadline_s: seconds each request may take.
        max_cost: what the calls of one request may cost together, in the models' `cost`.
        progress: called with (rows done, rows in all) now and then.

    Raises:
        ValueError: the policy names a model that the table does not have, or has rules and the table kept no inputs.
    """
    ladder = fallback or FallbackSettings(retry=0, peer=False, lighter=False)
    named = models_of(policy)
    if strangers := [name for name in named if name not in table.columns]:
        raise ValueError(f"the policy names {', '.join(strangers)}; the table has {', '.join(table.models)}")
    if table.inputs is None and table.meta is None and any(isinstance(part, Rules) for part in walk(policy)):
        raise ValueError(
            "the policy has rules that read the request, but the table kept no inputs: evaluate with inputs kept"
        )
    of_requests = [scorer for scorer in scorers if not isinstance(scorer, AnswerScorer)]
    route = Route(
        policy=policy,
        fallback=ladder,
        links={name: _link(info, table) for name, info in table.model_info.items() if name in table.columns},
        default=default or ladder.default or next(iter(answering_of(policy)), table.models[0]),
        answer_scorers=tuple(scorer for scorer in scorers if isinstance(scorer, AnswerScorer)),
        steering=steering_of(policy),
    )
    run = _Run(table, route, of_requests, holds or Holds(), spends, deadline_s, max_cost)
    for row, cells in enumerate(run.rows()):
        run.play(row, cells, row * interval_s)
        if progress is not None and (row + 1) % 1000 == 0:
            progress(row + 1, len(table))
    if progress is not None:
        progress(len(table), len(table))
    return run.result()


def unrecorded(model: str) -> str:
    """Return what `error` says of a row that was left out because the policy asked `model`, which was not recorded."""
    return f"no outcome of {model} recorded"


def _link(info: ModelInfo, table: OutcomesTable) -> Link:
    peers = tuple(peer for peer in info.peers if peer in table.columns)
    return Link(peers, info.lighter if info.lighter in table.columns else None, info.cost)


class _Scores(Mapping[str, float]):
    """One row of a score matrix as a mapping, made into a dict only when somebody looks."""

    __slots__ = ("_labels", "_made", "_row")

    def __init__(self, labels: tuple[str, ...], row: npt.NDArray[np.float32]) -> None:
        self._labels, self._row = labels, row
        self._made: dict[str, float] | None = None

    def _dict(self) -> dict[str, float]:
        if self._made is None:
            self._made = dict(zip(self._labels, self._row.tolist(), strict=True))
        return self._made

    def __getitem__(self, label: str) -> float:
        return self._dict()[label]

    def __iter__(self) -> Iterator[str]:
        return iter(self._labels)

    def __len__(self) -> int:
        return len(self._labels)

    def items(self) -> Any:
        return self._dict().items()

    def values(self) -> Any:
        return self._dict().values()


Cells = dict[str, tuple[int, float, float, float, int, npt.NDArray[np.float32] | None]]
"""Model -> label code, confidence, latency, cost, failure code, scores."""


class _Absent(Exception):
    """The policy asked for an outcome that was not recorded; the row cannot be replayed."""


class _Run:
    """One replay under way: what is fixed for all rows, and what came out so far."""

    def __init__(
        self,
        table: OutcomesTable,
        route: Route,
        scorers: Sequence[Scorer],
        holds: Holds,
        spends: Sequence[Spend],
        deadline_s: float,
        max_cost: float,
    ) -> None:
        n, m = len(table), len(table.models)
        self.table, self.route, self.scorers, self.holds = table, route, scorers, holds
        self.deadline_s, self.max_cost = deadline_s, max_cost
        self.spends, self.spent = spends, Spends()
        self.view = {
            name: ModelView(name, cost=info.cost, tier=info.tier, tags=info.tags)
            for name, info in table.model_info.items()
            if name in table.columns
        }
        self.held = tuple(
            (part.name, part.key) for part in walk(route.policy) if getattr(part, "hysteresis", None) is not None
        )
        self.code = {label: index for index, label in enumerate(table.labels)}
        self.at = {name: index for index, name in enumerate(table.models)}
        self.label, self.level = np.full(n, -1, np.int32), np.zeros(n, np.int8)
        self.confidence, self.cost, self.latency = np.full(n, np.nan), np.zeros(n), np.zeros(n)
        self.weights = np.zeros((n, m), np.float32)
        self.called, self.cancelled = np.zeros((n, m), dtype=bool), np.zeros((n, m), dtype=bool)
        self.reason, self.error, self.by, self.trouble = (np.full(n, "", dtype=object) for _ in range(4))
        self.review, self.guess = np.zeros(n, dtype=bool), np.full(n, -1, np.int32)
        self.left_out: dict[str, int] = {}

    def rows(self) -> Iterator[Cells]:
        """Each row's recorded results, as Python numbers."""
        for start in range(0, len(self.table), _BLOCK):
            block = slice(start, start + _BLOCK)
            lists = []
            for columns in self.table.columns.values():
                scores = columns.scores[block] if columns.scores is not None else None
                numbers = (columns.label, columns.confidence, columns.latency_s, columns.cost, columns.failure)
                plain = [column[block].tolist() for column in numbers]
                lists.append(list(zip(*plain, scores if scores is not None else [None] * len(plain[0]), strict=True)))
            for cells in zip(*lists, strict=True):
                yield dict(zip(self.table.models, cells, strict=True))

    def play(self, row: int, cells: Cells, arrival: float) -> None:
        """Take one row from arrival to ending."""
        request = self.table.request(row) if self._reads_request else Request(id=self.table.ids[row], data=None)
        if min(self.deadline_s, self.max_cost) != float("inf"):
            request = structs.replace(request, deadline=self.deadline_s, max_cost=self.max_cost)
        journey = Journey(self.route, self._context(request, arrival))
        try:
            now = self._drive(journey, cells)
        except _Absent as absent:
            reason = unrecorded(str(absent))
            self.error[row] = reason
            self.left_out[reason] = self.left_out.get(reason, 0) + 1
            return
        self._note(row, journey, cells, now)
        if self.spends:
            self.spent.note(self.spends, request.tenant, journey.started, float(self.cost[row]), arrival)
        ending = journey.ending
        if ending is not None and ending.hold is not None:
            for name, kind in self.held:
                if name == ending.hold[0]:
                    self.holds.put(f"{name}/{request.key(kind)}", ending.hold[1], arrival)

    @property
    def _reads_request(self) -> bool:
        return self.table.inputs is not None or self.table.meta is not None

    def _context(self, request: Request, arrival: float) -> Context:
        signals: dict[str, float] = {}
        for scorer in self.scorers:
            try:
                signals.update(scorer.score(request))
            except Exception:  # as when served: the policy that needs it will miss it, and say so
                continue
        if self.spends:
            signals.update(self.spent.signals(self.spends, request.tenant, arrival))
        pairs = ((name, self.holds.get(f"{name}/{request.key(kind)}", arrival)) for name, kind in self.held)
        held = {name: value for name, value in pairs if value is not None}
        return Context(request, signals, self.view, held)

    def _drive(self, journey: Journey, cells: Cells) -> float:
        """Deliver outcomes in the order they would arrive; return when the request ended, in seconds."""
        running: list[tuple[float, str]] = []
        now = 0.0
        fresh = journey.start(now)
        while journey.ending is None:
            for name in fresh:
                cell = cells[name]
                if cell[4] == ABSENT:
                    raise _Absent(name)
                running.append((now + cell[2], name))
            if len(running) > 1:
                running.sort(reverse=True)
            if not running or running[-1][0] > self.deadline_s:
                now = self.deadline_s if running else now
                journey.expire(now)
                break
            now, name = running.pop()
            fresh = journey.arrived(self._outcome(name, cells[name]), now)
        return now

    def _outcome(self, name: str, cell: tuple[int, float, float, float, int, Any]) -> Outcome:
        label, confidence, latency, cost, code, scores = cell
        failure, prediction = None, None
        if code != OK:
            failure = Failure(FAILURE_KINDS[code - 1])
        elif label < 0:
            failure = Failure("bad_output", "no label")
        else:
            given = scores is not None and len(scores) > 0 and scores[0] == scores[0]
            distribution = _Scores(self.table.labels, scores) if given else None
            sure = confidence if confidence == confidence else None  # noqa: PLR0124  NaN is a missing confidence
            prediction = Prediction(self.table.labels[label], sure, distribution)
        version = self.table.model_info[name].version
        attempts = (Attempt(name, 0.0, latency, failure),)
        return Outcome(name, prediction, failure, attempts, name, version, 0, latency, cost)

    def _note(self, row: int, journey: Journey, cells: Cells, now: float) -> None:
        ending = journey.ending
        if ending is None:
            raise RuntimeError("a journey stopped without an ending")
        self.latency[row] = now
        self.reason[row], self.by[row], self.level[row] = ending.reason, ending.by, ending.level
        self.trouble[row] = journey.trouble or ""
        self.review[row] = bool(ending.review)
        cost = sum([outcome.cost for outcome in journey.history])
        for name in journey.started:
            self.called[row, self.at[name]] = True
        for name in journey.in_flight:
            self.cancelled[row, self.at[name]] = True
            cost += cells[name][3]
        self.cost[row] = cost
        if ending.prediction is None:
            self.error[row] = ending.error.type if ending.error is not None else "no answer"
            return
        label = ending.prediction.label
        self.label[row] = self.code.setdefault(label, len(self.code))  # a preset may say what no model ever did
        guess = ending.guess if ending.guess is not None else label
        self.guess[row] = self.code.setdefault(guess, len(self.code))
        if ending.prediction.confidence is not None:
            self.confidence[row] = ending.prediction.confidence
        for name, weight in ending.weights.items():
            self.weights[row, self.at[name]] = weight

    def result(self) -> ReplayResult:
        return ReplayResult(
            table=self.table,
            label=self.label,
            confidence=self.confidence,
            level=self.level,
            cost=self.cost,
            latency_s=self.latency,
            weights=self.weights,
            called=self.called,
            cancelled=self.cancelled,
            reason=self.reason,
            error=self.error,
            by=self.by,
            trouble=self.trouble,
            review=self.review,
            guess=self.guess,
            left_out=self.left_out,
            extra_labels=tuple(self.code)[len(self.table.labels) :],
        )
