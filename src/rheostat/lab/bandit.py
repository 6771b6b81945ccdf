"""What a bandit knows, brought up to date outside of its decisions: from outcomes tables, from records, reward by reward."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

import msgspec
import numpy as np
from msgspec import structs

from rheostat.lab.metrics import Floats
from rheostat.lab.outcomes import OutcomesTable
from rheostat.lab.records import judged_value, read_feedback, read_routed
from rheostat.policies.bandit import ALL, Bandit, Linear, Seen

_MOST_SEGMENTS: Final = 1_000  # segments that learn on their own; further ones count for all traffic alone


@dataclass(frozen=True)
class Updated:
    """A bandit that knows more: how many rewards were taken in by arm, and why others were not."""

    policy: Bandit
    taken: Mapping[str, int]
    left_out: Mapping[str, int]


class Learner:
    """Takes in rewards one at a time and gives the policy that knows them.

    Sums are kept (number, reward, squared reward by arm and segment; LinUCB's matrices), so the order does not matter, and a
    learner that starts from a policy's snapshot goes on where that stood.
    """

    def __init__(self, policy: Bandit) -> None:
        self._policy = policy
        self._place = {arm: row for row, arm in enumerate(policy.arms)}
        self._sums: dict[str, Floats] = {ALL: _sums(policy.arms, policy.seen)}
        self._sums |= {name: _sums(policy.arms, seen) for name, seen in policy.segments.items()}
        size = len(policy.features) + 1
        self._linear = {}
        if policy.algorithm == "linucb":
            for arm in policy.arms:
                kept = policy.linear.get(arm)
                precision = np.eye(size) if kept is None else np.array(kept.precision)
                self._linear[arm] = (precision, np.zeros(size) if kept is None else np.array(kept.moment))
        self._seen: dict[str, dict[str, Seen]] = {ALL: dict(policy.seen)}
        self._seen |= {name: dict(seen) for name, seen in policy.segments.items()}
        self._dirty: set[str] = set()

    def learn(self, arm: str, reward: float, segment: str = ALL, values: Sequence[float] = (), weight: float = 1.0) -> None:
        """Take in one reward of `arm`; `values` are the signals of `features`, `weight` below 1 makes it a pseudo-count.

        Raises:
            ValueError: an unknown arm, a reward that is no number or, with rewards `unit`, outside [0, 1].
        """
        if arm not in self._place:
            raise ValueError(f"{arm!r} is no arm of this bandit; it has {', '.join(self._policy.arms)}")
        if not isfinite(reward):
            raise ValueError(f"a reward of {arm} is {reward}; leave it out")
        if self._policy.rewards == "unit" and not 0.0 <= reward <= 1.0:
            raise ValueError(f"a reward of {arm} is {reward:g}, outside [0, 1]; use `rewards: any`")
        grown = weight * np.array([1.0, reward, reward * reward])
        for name in (ALL, segment) if segment and self._room(segment) else (ALL,):
            self._sums[name][self._place[arm]] += grown
            self._dirty.add(name)
        if self._linear:
            x = np.array([1.0, *values])
            precision, moment = self._linear[arm]
            precision += weight * np.outer(x, x)
            moment += weight * reward * x

    def policy(self, until: float | None = None) -> Bandit:
        """Return the bandit with what is known now as its snapshot."""
        for name in self._dirty:
            self._seen[name] = _seen(self._policy.arms, self._sums[name])
        self._dirty.clear()
        linear = {
            arm: Linear(tuple(map(tuple, precision.tolist())), tuple(moment.tolist()))
            for arm, (precision, moment) in self._linear.items()
        }
        segments = {name: seen for name, seen in self._seen.items() if name != ALL}
        stands = self._policy.until if until is None else until
        return structs.replace(self._policy, seen=self._seen[ALL], segments=segments, linear=linear, until=stands)

    def _room(self, segment: str) -> bool:
        if segment not in self._sums:
            if len(self._sums) > _MOST_SEGMENTS:
                return False
            self._sums[segment] = np.zeros((len(self._place), 3))
        return True


def warm_start(
    policy: Bandit,
    table: OutcomesTable,
    *,
    weight: float = 0.5,
    most: float = 200.0,
    price: float = 0.0,
    only: Sequence[str] | None = None,
) -> Updated:
    """Take labelled outcomes in as pseudo-counts: reward 1 for a right label, else 0, minus `price` times the call's cost.

    Args:
        weight: how much of a live request one labelled row counts for: traffic is seldom just like the labelled set.
        most: pseudo-requests per arm at most; weights shrink so that live rewards can still overrule.
        only: arms to warm; None for all that nothing is known of yet.

    Raises:
        ValueError: an arm is not in the table, it has no judged rows, LinUCB is asked for (it learns live), or a count
            is no number above 0.
    """
    if not (0.0 < weight < float("inf") and 0.0 < most < float("inf")):
        raise ValueError(f"`weight` and `most` are finite numbers above 0, got {weight} and {most}")
    if policy.algorithm == "linucb":
        raise ValueError("an outcomes table keeps no signals, so `linucb` learns from records alone: use --from-records")
    arms = [arm for arm in policy.arms if arm not in policy.seen] if only is None else list(only)
    learner, taken = Learner(policy), {}
    segment = _segments(table, policy.segment)
    for arm in arms:
        if arm not in table.models:
            raise ValueError(f"the table has no model {arm!r}; it has {', '.join(table.models)}")
        rows = np.flatnonzero(table.known & table.answered(arm))
        if not len(rows):
            raise ValueError(f"{arm} has no judged answer in the table")
        share = min(weight, most / len(rows))
        right, cost = table.correct(arm), table.model(arm).cost
        for row in rows:
            learner.learn(arm, float(right[row]) - price * float(cost[row]), segment[row], weight=share)
        taken[arm] = len(rows)
    return Updated(learner.policy(), taken, table.left_out(arms))


def from_records(policy: Bandit, path: str | os.PathLike[str], *, price: float = 0.0) -> Updated:
    """Take in every judged choice of this bandit in a record file that came after `policy.until`.

    Only the bandit's own choices count (the record's `route_type` is its name): others were made for reasons that may have
    to do with the reward.

    Raises:
        StoreError: the file holds no records.
    """
    feedback = read_feedback(path)
    learner, taken, left_out = Learner(policy), Counter[str](), Counter[str]()
    until = policy.until
    for record in read_routed(path):
        why, judgement = "", feedback.get(record.id)
        call = next((step for step in record.steps if step.kind == "call"), None)
        value = judged_value(record, judgement) if judgement is not None else None
        if record.route_type != policy.name or record.forced or call is None:
            why = "not this bandit's choice"
        elif judgement is None or value is None:
            why = "no judgement"
        elif judgement.wall <= policy.until:
            why = "known already"
        elif len(call.models) != 1 or call.models[0] not in policy.arms:
            why = "a model that is no arm any more"
        elif any(name not in record.signals for name in policy.signals()):
            why = "a signal is missing"
        else:
            try:
                learner.learn(
                    call.models[0],
                    value - price * record.cost,
                    str(record.meta.get(policy.segment, ALL)) if policy.segment is not None else ALL,
                    [record.signals[name] for name in policy.signals()],
                )
            except ValueError as error:
                why = str(error)
            else:
                taken[call.models[0]] += 1
                until = max(until, judgement.wall)
                feedback.pop(record.id)  # an id used again does not count its judgement twice
        if why:
            left_out[why] += 1
    return Updated(learner.policy(until), dict(taken), dict(left_out))


def _sums(arms: Sequence[str], seen: Mapping[str, Seen]) -> Floats:
    rows = [seen.get(arm, Seen(0.0, 0.0)) for arm in arms]
    return np.array([[one.n, one.n * one.mean, one.n * (one.var + one.mean**2)] for one in rows])


def _seen(arms: Sequence[str], sums: Floats) -> dict[str, Seen]:
    found = {}
    for arm, (n, total, squares) in zip(arms, sums.tolist(), strict=True):
        if n > 0.0:
            mean = total / n
            found[arm] = Seen(round(n, 6), mean, max(squares / n - mean * mean, 0.0))
    return found


def _segments(table: OutcomesTable, field: str | None) -> list[str]:
    if field is None or table.meta is None:
        return [ALL] * len(table)
    found: list[Any] = [msgspec.json.decode(row).get(field, ALL) if row else ALL for row in table.meta]
    return list(map(str, found))
