"""From route records and judgements to a log for off-policy evaluation."""

from __future__ import annotations

import os
from array import array
from collections import Counter
from collections.abc import Callable
from math import isfinite

import numpy as np

from rheostat.lab.ope.choices import action_of, check_settles, choices, context_of, drawn_by
from rheostat.lab.ope.log import Log, OpeRefused
from rheostat.lab.records import judged_value, read_feedback, read_routed
from rheostat.policies import Policy
from rheostat.types import Feedback, RouteRecord

_CHECKED = 200  # rows on which the policy is asked whether it decides again
_GROUPS = 20  # values of the `by` field that get a column of their own


def log_from_records(
    path: str | os.PathLike[str],
    policy: Policy,
    *,
    route: str | None = None,
    price: float = 0.0,
    cluster: str = "session",
    by: str | None = None,
    tell: Callable[[int], None] | None = None,
) -> Log:
    """Return the log of the choices in a record file, with `policy` as the one to be judged.

    The action of a request is the models of its first call, its propensity the one of that step. The reward is the
    judgement's `reward`, else 1 or 0 for whether its label is the answer's, minus `price` times the request's cost. Features
    for the regression: the recorded signals, the input's length, and the commonest values of the meta field `by`.

    Args:
        route: use the records of one route only.
        price: what a unit of cost is worth in units of reward.
        cluster: `session`, `tenant`, `request` or a meta field: what is resampled together.
        tell: called with the number of records read, every ten thousand.

    Raises:
        OpeRefused: no record can be used, or the policy decides again after an answer.
        StoreError: the file holds no records.
    """
    feedback = read_feedback(path)
    times: Counter[str] = Counter(record.id for record in read_routed(path) if record.id in feedback)
    rows = _Rows(policy, price, cluster, by)
    for count, record in enumerate(read_routed(path), 1):
        if route is None or record.route == route:
            judgement = feedback.get(record.id)
            why = "the same request id several times" if times[record.id] > 1 else rows.add(record, judgement)
            if why:
                rows.left_out[why] += 1
        if tell is not None and not count % 10_000:
            tell(count)
    return rows.log()


class _Rows:
    """Collects rows as flat arrays of numbers, so that a million of them fit."""

    def __init__(self, policy: Policy, price: float, cluster: str, by: str | None) -> None:
        self.policy, self.price, self.cluster, self.by = policy, price, cluster, by
        self.keys = drawn_by(policy)
        self.left_out: Counter[str] = Counter()
        self.failed = ""
        self.actions: dict[str, int] = {}
        self.clusters: dict[str, int] = {}
        self.groups: dict[str, int] = {}
        self.signals: tuple[str, ...] | None = None
        self.action, self.cluster_codes, self.group = array("i"), array("i"), array("i")
        self.reward, self.propensity, self.features = array("d"), array("d"), array("d")
        self.target_row, self.target_action, self.target_share = array("i"), array("i"), array("d")

    def add(self, record: RouteRecord, judgement: Feedback | None) -> str:
        """Take one record in, or say why it cannot be used."""
        why = _unusable(record)
        if why:
            return why
        value = judged_value(record, judgement) if judgement is not None else None
        if value is None:
            return "no judgement"
        step = next(step for step in record.steps if step.kind == "call")
        reward = value - self.price * record.cost
        if not isfinite(reward) or not 0.0 < step.propensity <= 1.0:
            return "a reward or propensity that is no number in range"
        ctx = context_of(record)
        try:
            if len(self.action) < _CHECKED:
                check_settles(self.policy, ctx)
            target = choices(self.policy, ctx, self.keys)
        except OpeRefused as refused:
            if "decides again" in str(refused):
                raise
            self.failed = self.failed or str(refused)
            return "the policy does not choose here"
        except Exception as error:  # the policy's own failure on what a record keeps, such as a signal that is not there
            self.failed = self.failed or f"{type(error).__name__}: {error}"
            return "the policy fails on what the record kept"
        row = len(self.action)
        self.action.append(_code(self.actions, action_of(step.models)))
        self.reward.append(reward)
        self.propensity.append(step.propensity)
        self.cluster_codes.append(_code(self.clusters, ctx.request.key(self.cluster)))
        for action, share in target.items():
            self.target_row.append(row)
            self.target_action.append(_code(self.actions, action))
            self.target_share.append(share)
        if self.signals is None:
            self.signals = tuple(sorted(record.signals))
        self.features.extend(record.signals.get(name, 0.0) for name in self.signals)
        self.features.append(float(record.input.length) if record.input is not None else 0.0)
        self.group.append(_code(self.groups, str(record.meta.get(self.by))) if self.by is not None else 0)
        return ""

    def log(self) -> Log:
        n = len(self.action)
        if not n:
            reasons = ", ".join(f"{count} x {why}" for why, count in self.left_out.most_common()) or "the file has none"
            first = f" ({self.failed})" if self.failed else ""
            raise OpeRefused(f"no record can be used: {reasons}{first}; judgements come in by POST /v1/feedback")
        target = np.zeros((n, len(self.actions)), np.float32)
        target[np.asarray(self.target_row), np.asarray(self.target_action)] = np.asarray(self.target_share)
        features = np.asarray(self.features).reshape(n, -1)
        features = np.where(np.isfinite(features), features, 0.0)
        if self.by is not None:
            group = np.asarray(self.group)
            common = np.argsort(-np.bincount(group), kind="stable")[:_GROUPS]
            features = np.column_stack([features, group[:, None] == common[None, :]])
        return Log(
            np.asarray(self.action, np.int32),
            np.asarray(self.reward),
            np.asarray(self.propensity),
            target,
            tuple(self.actions),
            features,
            np.asarray(self.cluster_codes, np.int32),
            dict(self.left_out),
        )


def _unusable(record: RouteRecord) -> str:
    if record.forced:
        return "forced by the caller"
    calls = [step for step in record.steps if step.kind == "call"]
    if record.status in ("rejected", "cancelled") or not calls:
        return "no model was asked, or the client left"
    if any(set(call.models) - set(calls[0].models) for call in calls[1:]):
        return "decided again after an answer"
    return ""


def _code(codes: dict[str, int], name: str) -> int:
    return codes.setdefault(name, len(codes))
