"""Retuning: what moves when a model changes, and what is advised then."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from lab_tables import synthetic

from rheostat.lab.goal import Goal
from rheostat.lab.outcomes import OutcomesTable
from rheostat.lab.retune import RetuneError, retune
from rheostat.lab.tune import tune
from rheostat.policies import Cascade, Use

GOAL = Goal(max_share=0.3)


def changed(base: OutcomesTable, name: str, **changes: object) -> OutcomesTable:
    return replace(base, columns={**base.columns, name: replace(base.columns[name], **changes)})  # type: ignore[arg-type]


def spoilt(base: OutcomesTable, name: str, share: float) -> OutcomesTable:
    """The model answers wrongly on a further share of the rows, as sure as before."""
    label = base.columns[name].label.copy()
    hit = np.random.default_rng(9).random(len(base)) < share
    label[hit] = (base.truth[hit] + 1) % len(base.labels)
    return changed(base, name, label=label, scores=None)


@pytest.fixture(scope="module")
def base() -> OutcomesTable:
    return synthetic(6000, small=0.8, large=0.95)


@pytest.fixture(scope="module")
def policy(base: OutcomesTable) -> Cascade:
    found = tune(base, GOAL, stages=("small", "large")).policy
    assert isinstance(found, Cascade)
    return found


def test_nothing_changed_nothing_moves(base: OutcomesTable, policy: Cascade) -> None:
    found = retune(policy, base, base, goal=GOAL)
    assert found.act == "keep"
    assert found.quality.change.mean == found.share.change.mean == found.cost.change.mean == 0.0
    assert found.proposed is not None
    assert found.proposed.policy == policy
    assert {each.same_labels for each in found.models} == {1.0}


def test_a_timid_new_model_breaks_the_budget_and_gets_a_new_cut(base: OutcomesTable, policy: Cascade) -> None:
    timid = changed(base, "small", confidence=base.columns["small"].confidence ** 2)
    found = retune(policy, base, timid, goal=GOAL)
    assert found.act == "retune"
    assert found.share.change.better
    assert any("goal is broken" in reason for reason in found.reasons)
    assert isinstance(found.proposed.policy, Cascade)  # type: ignore[union-attr]
    assert found.proposed.policy.threshold == pytest.approx(policy.threshold**2)  # type: ignore[union-attr]
    small = found.models[0]
    assert small.ece[1] > small.ece[0]
    assert small.accuracy.change.mean == 0.0


def test_a_worse_model_that_no_setting_mends_is_held_back(base: OutcomesTable, policy: Cascade) -> None:
    found = retune(policy, base, spoilt(base, "small", 0.3), goal=GOAL)
    assert found.act == "hold back"
    assert found.quality.change.worse
    assert "Hold the new model back" in found.headline


def test_without_a_goal_the_old_share_is_kept(base: OutcomesTable, policy: Cascade) -> None:
    timid = changed(base, "small", confidence=base.columns["small"].confidence ** 2)
    found = retune(policy, base, timid)
    assert found.goal.max_share == pytest.approx(found.share.before.mean, abs=0.04)
    assert found.act == "retune"


def test_rows_are_matched_by_id_in_any_order(base: OutcomesTable, policy: Cascade) -> None:
    order = np.random.default_rng(1).permutation(len(base))
    found = retune(policy, base, base.subset(order), goal=GOAL)
    assert found.quality.change.mean == 0.0
    assert found.rows == int((base.split == 2).sum())


def test_a_kind_that_is_not_tuned_is_only_compared(base: OutcomesTable) -> None:
    found = retune(Use("large"), base, spoilt(base, "large", 0.2))
    assert found.act == "hold back"
    assert found.proposed is None
    assert retune(Use("large"), base, base).act == "keep"


def test_tables_that_cannot_be_compared_are_refused(base: OutcomesTable, policy: Cascade) -> None:
    strangers = replace(base, ids=np.array([f"x{i}" for i in range(len(base))], dtype=object))
    with pytest.raises(RetuneError, match="no row id in common"):
        retune(policy, base, strangers)
    with pytest.raises(RetuneError, match="another right label"):
        retune(policy, base, replace(base, truth=(base.truth + 1) % 3))
    with pytest.raises(RetuneError, match="new table has no model 'large'"):
        retune(policy, base, replace(base, columns={"small": base.columns["small"]}, model_info={}))
    with pytest.raises(RetuneError, match="another split"):
        retune(policy, base, replace(base, split=np.full(len(base), 2, dtype=np.int8)))
