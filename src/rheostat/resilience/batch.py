"""When a batch goes and how many rows it takes. Pure.

A call over n rows takes `per_row * n + fixed` seconds; both are fitted to the calls that have been (as BentoML does). With n
rows there and the next one expected in g seconds, going now costs the next row a call of its own, waiting costs everybody g:
over all n + 1 rows waiting is worth it while `fixed > per_row * n + g * (n + 1)`. Deadlines, a latency target and the rows
that fit into memory bound the size; rows that cannot be answered in time make room for those that can (as in Nexus).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec import Struct

from rheostat.types.duration import Duration

_KEPT = 0.98  # of the weight of what is known, with each further call
_TRUSTED = 4.0  # calls, after which one that takes very much longer than expected is taken for an accident
_OUTLIER = 4.0
_DOUBT = 0.02  # how much spread in the sizes it takes to believe in a fixed part, as a share of their square
_NEWEST = 0.125  # weight of the latest gap between two rows
_OVERLONG = 2.0  # times the target
_UNSTEADY = 0.25  # how much the rows in hand may differ from one call to the next
FULL, TARGET, DEADLINE, WAITED, ALONE, ENOUGH = "full", "target", "deadline", "waited", "alone", "enough"
REASONS = (FULL, TARGET, DEADLINE, WAITED, ALONE, ENOUGH)
"""Why a batch goes: it is full; a larger one would miss the latency target or a row's deadline; it has waited `max_wait`;
one row for which no company is expected; waiting for one more no longer pays."""


class BatchSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rows of several requests go through the model in one call.

    At most `max_rows` (2 to 4096) a call. A row waits for others only while that pays, by what calls have taken and how
    rows arrive, and never longer than `max_wait`. With `target` no call takes more rows than it is expected to answer in
    that time. `instances` (1 to 64) calls run at a time. Rows of unlike shape are never mixed. It needs a model that takes
    several rows a call: `http`, `openai` and callables with `each` do not. While the same clients keep the model busy, calls
    that follow each other are of even size, so that it computes while the answers of the call before are sent.
    """

    max_rows: int = 32
    max_wait: Duration = Duration(0.01)
    target: Duration = Duration(0.0)
    instances: int = 1

    def __post_init__(self) -> None:
        if not 2 <= self.max_rows <= 4096:
            raise ValueError(f"`max_rows` must lie between 2 and 4096, got {self.max_rows}; leave out `batch` for none")
        if not 1 <= self.instances <= 64:
            raise ValueError(f"`instances` must lie between 1 and 64, got {self.instances}")


class Pace(Struct, frozen=True, gc=False):
    """How long calls take: `per_row * rows + fixed` seconds. The rest are sums over past calls, older ones weighing less."""

    per_row: float = 0.0
    fixed: float = 0.0
    weight: float = 0.0
    rows: float = 0.0
    seconds: float = 0.0
    squares: float = 0.0
    products: float = 0.0

    def expects(self, rows: int) -> float:
        """Return the seconds that a call over `rows` rows should take; 0 when nothing is known."""
        return self.per_row * rows + self.fixed


class Arrivals(Struct, frozen=True, gc=False):
    """How rows arrive: `gap` seconds apart of late, the last one at `last`."""

    gap: float = float("inf")
    last: float = float("-inf")


class Verdict(NamedTuple):
    """Take the first `take` rows because of `reason`; with 0 wait, at most until `until`."""

    take: int
    reason: str
    until: float


def took(pace: Pace, rows: int, seconds: float) -> Pace:
    """A call over `rows` rows has taken `seconds`: fit the line again, by least squares.

    While all calls are of about the same size nothing tells a fixed part from the rows', and then there is none.
    """
    if pace.weight > _TRUSTED and pace.seconds > 0.0:
        seconds = min(seconds, _OUTLIER * max(pace.expects(rows), pace.seconds / pace.weight))
    weight = pace.weight * _KEPT + 1.0
    total = pace.rows * _KEPT + rows
    spent = pace.seconds * _KEPT + seconds
    squares = pace.squares * _KEPT + rows * rows
    products = pace.products * _KEPT + rows * seconds
    size, time = total / weight, spent / weight
    spread, common = squares / weight - size * size, products / weight - size * time
    doubt = _DOUBT * size * size
    slope = (common + doubt * time / size) / (spread + doubt)
    per_row = min(max(slope, 0.0), time / size)
    return Pace(per_row, max(0.0, time - per_row * size), weight, total, spent, squares, products)


def arrived(arrivals: Arrivals, now: float, longest: float) -> Arrivals:
    """A row came; a pause of more than `longest` seconds says no more than that waiting would not have paid."""
    since = min(max(0.0, now - arrivals.last), longest)
    if arrivals.gap == float("inf"):
        return Arrivals(since if arrivals.last != float("-inf") else float("inf"), now)
    return Arrivals(arrivals.gap + _NEWEST * (since - arrivals.gap), now)


def limit_after(limit: int, settings: BatchSettings, rows: int, seconds: float, *, out_of_memory: bool) -> int:
    """Return the most rows of the next call: half after one that did not fit into memory or took twice the target, one more
    after a full one that went well."""
    overlong = settings.target > 0.0 and seconds > _OVERLONG * settings.target and rows > 1
    if out_of_memory or overlong:
        return max(1, min(limit, rows) // 2)
    return min(settings.max_rows, limit + 1) if rows >= limit else limit


def most_rows(settings: BatchSettings, pace: Pace, limit: int) -> tuple[int, str]:
    """Return how many rows a call may have now, and whether it is FULL then or would miss the TARGET with more."""
    most = min(limit, settings.max_rows)
    if settings.target <= 0.0 or pace.expects(most) <= settings.target:
        return most, FULL
    free = settings.target - pace.fixed
    return max(1, int(free / pace.per_row + 1e-9)) if pace.per_row > 0.0 and free > 0.0 else 1, TARGET


def evenly(take: int, waiting: int, back: int, running: int, before: int, instances: int) -> int:
    """Return how many of the `take` rows that could go now shall go, when a call has just ended.

    Clients that wait for each answer come back together: a large and a small call in turn, the model idle while the answers
    of the large one are sent. The time of both is the least when they are alike, as each is a convex function of its size.
    So where the rows in hand (`waiting`, `back` from the call, and `running` in others) are about as many as they were
    `before`, when the last call ended, a call takes its even share of them; nobody who comes alone is held up.
    """
    together = waiting + back + running
    if not before or abs(together - before) > together * _UNSTEADY:
        return take
    return min(take, -(-together // (instances + 1)))


def too_late(pace: Pace, most: int, dues: Sequence[float], others: bool, now: float) -> float:
    """Return the time before which rows that have to be answered make room for those that need not.

    With enough rows for a full call, all that would be late in it go: calls that are cut short for them would only make more
    rows late. Otherwise those go that would be late even alone; if all would be, and no `others` wait, they are tried.
    """
    full, alone = now + pace.expects(most), now + pace.expects(1)
    if sum([due >= full for due in dues]) >= most:
        return full
    return alone if others or any(due >= alone for due in dues) else float("-inf")


def decide(
    settings: BatchSettings,
    pace: Pace,
    arrivals: Arrivals,
    limit: int,
    dues: Iterable[float],
    rows: int,
    oldest: float,
    now: float,
    share: float = 1.0,
) -> Verdict:
    """Say what becomes of `rows` rows (1 or more) that may share a call, while one could start.

    Args:
        limit: the most rows of a call, as `limit_after` says.
        dues: by when each has to be answered, in the order they are taken.
        oldest: when the first of them came.
        share: of the arriving rows that may join these, in (0, 1].
    """
    most, why = most_rows(settings, pace, limit)
    count, tightest = 0, float("inf")
    for due in dues:
        if count == most:
            break
        nearer = min(tightest, due)
        if count and now + pace.expects(count + 1) > nearer:
            return Verdict(count, DEADLINE, now)
        count, tightest = count + 1, nearer
    if count == most:
        return Verdict(count, why, now)
    worth = (pace.fixed - pace.per_row * rows) / (rows + 1)
    if arrivals.gap >= worth * share:
        return Verdict(count, ALONE if rows == 1 else ENOUGH, now)
    patience, last, latest = arrivals.last + worth, oldest + settings.max_wait, tightest - pace.expects(rows + 1)
    until = min(patience, last, latest)
    if until > now:
        return Verdict(0, "", until)
    return Verdict(count, DEADLINE if until == latest else WAITED if until == last else ENOUGH, now)
