"""What came out, way by way: measured at the clients, set against each other, and against what replay foretold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from rheostat.demo.clients import Heard, request_id
from rheostat.lab.bootstrap import Difference, Interval, bootstrap, paired_bootstrap
from rheostat.lab.metrics import oracle
from rheostat.lab.replay import replay

if TYPE_CHECKING:
    from rheostat.lab.outcomes import Floats, OutcomesTable
    from rheostat.policies import Policy

_QUANTILES = (0.5, 0.95, 0.99)


class Way(Struct, frozen=True):
    """One way of deciding: what to call it, the gateway's route that does it, and the policy of that route."""

    title: str
    route: str
    policy: Policy


class Line(Struct, frozen=True, kw_only=True):
    """One way over all test sentences. An unanswered request counts as wrong.

    `share` is the share of requests that called the last model, by the gateway's records; `cost` the mean of the models'
    cost a request; `waits_ms` P50, P95 and P99 at the client, over answered requests. `differs` counts the requests whose
    label or calls were not what replay over the outcomes table foretold.
    """

    title: str
    route: str
    accuracy: Interval
    share: Interval
    cost: float
    waits_ms: tuple[float, float, float]
    unanswered: int
    differs: int
    gaps: Mapping[str, Difference]


class Results(Struct, frozen=True, kw_only=True):
    """All ways on the same `rows` sentences. `gaps` in a line are paired with the ways that `rivals` names.

    `oracle` is the accuracy of always taking one of the models in `among` that is right, lucky guesses included, at the
    cost `oracle_cost`.
    """

    rows: int
    clients: int
    last: str
    rivals: tuple[str, ...]
    lines: tuple[Line, ...]
    among: tuple[str, ...]
    oracle: float
    oracle_cost: float
    requests: int
    recorded: int

    @property
    def differs(self) -> int:
        """Requests that went otherwise than foretold, all ways together."""
        return sum(line.differs for line in self.lines)


def results(
    test: OutcomesTable,
    heard: Sequence[tuple[Way, Sequence[Heard]]],
    called: frozenset[str],
    recorded: int,
    *,
    rivals: Sequence[str],
    among: Sequence[str],
    clients: int,
) -> Results:
    """Judge what the clients heard.

    Args:
        test: the rows that were sent, in that order, with every model's recorded outcome.
        heard: by way, an answer a row.
        called: ids of the requests that called the last model, from the records.
        recorded: how many requests the gateway recorded.
        rivals: titles of the ways that the others are compared with.
        among: the models that the oracle chooses from.
        clients: how many sent at a time.
    """
    last = test.models[-1]
    truth = [test.labels[code] for code in test.truth]
    right = {
        way.title: np.array([each.label == label for each, label in zip(said, truth, strict=True)], dtype=np.float64)
        for way, said in heard
    }
    lines = tuple(_line(test, way, said, right, called, rivals) for way, said in heard)
    quality = [test.correct(name).astype(np.float64) for name in among]
    cost = [test.model(name).cost for name in among]
    best, rows = oracle(quality, cost), np.arange(len(test))
    return Results(
        rows=len(test),
        clients=clients,
        last=last,
        rivals=tuple(rivals),
        lines=lines,
        among=tuple(among),
        oracle=float(np.stack(quality)[best, rows].mean()),
        oracle_cost=float(np.stack(cost)[best, rows].mean()),
        requests=sum(len(said) for _, said in heard),
        recorded=recorded,
    )


def _line(
    test: OutcomesTable,
    way: Way,
    said: Sequence[Heard],
    right: Mapping[str, Floats],
    called: frozenset[str],
    rivals: Sequence[str],
) -> Line:
    last = test.models.index(test.models[-1])
    asked = np.array([request_id(way.route, row) in called for row in test.ids])
    foretold = replay(way.policy, test)
    labels = (*test.labels, *foretold.extra_labels)
    differs = [
        each.label != (labels[code] if code >= 0 else None) or reached != expected
        for each, code, reached, expected in zip(said, foretold.label, asked, foretold.called[:, last], strict=True)
    ]
    answered = [each for each in said if each.status == 200]
    waits = np.array([each.seconds for each in answered] or [float("nan")]) * 1000.0
    p50, p95, p99 = np.quantile(waits, _QUANTILES, method="higher").tolist()
    return Line(
        title=way.title,
        route=way.route,
        accuracy=bootstrap(right[way.title]),
        share=bootstrap(asked.astype(np.float64)),
        cost=sum(each.cost for each in answered) / max(len(answered), 1),
        waits_ms=(p50, p95, p99),
        unanswered=len(said) - len(answered),
        differs=int(sum(differs)),
        gaps={name: paired_bootstrap(right[way.title], right[name]) for name in rivals if name != way.title},
    )
