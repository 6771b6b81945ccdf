"""Is a policy better? Are groups treated alike? Against hand-worked cases, and by how often the words are right."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab_tables import columns, table

from experiment.traffic import with_meta
from rheostat.lab.clustered import Sample, joint_draws
from rheostat.lab.experiment import Accuracy, Contender, Traffic, experiment
from rheostat.lab.experiment.compare import comparisons, holm
from rheostat.lab.experiment.fairness import Ground, fairness
from rheostat.lab.outcomes import OutcomesTable
from rheostat.lab.segments import by_meta
from rheostat.policies import Use


def test_holm_by_hand() -> None:
    # sorted .01 .02 .03 .04 times 4 3 2 1: .04 .06 .06 .06
    assert holm([0.03, 0.01, 0.04, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8))
def test_holm_never_makes_a_p_value_smaller_nor_beats_bonferroni(p: list[float]) -> None:
    found = holm(p)
    assert all(raw <= one <= min(1.0, raw * len(p)) + 1e-12 for raw, one in zip(p, found, strict=True))
    assert [one for _, one in sorted(zip(p, found, strict=True))] == sorted(found)


def test_a_comparison_counts_the_draws_on_the_other_side_of_zero() -> None:
    draws = np.stack([np.zeros(99), np.array([-1.0] * 4 + [1.0] * 95)], axis=1)
    _, found = comparisons([0.0, 0.9], draws, 0, lower_is_better=False)
    assert found is not None
    assert found.p == pytest.approx(2 * 5 / 100)
    assert (found.said, found.mean) == ("no difference shown", 0.9)


@pytest.mark.parametrize(("lower", "said"), [(False, "better"), (True, "worse")])
def test_the_metric_says_which_direction_is_better(lower: bool, said: str) -> None:
    draws = np.stack([np.zeros(999), np.linspace(0.1, 0.3, 999)], axis=1)
    assert comparisons([0.0, 0.2], draws, 0, lower_is_better=lower)[1].said == said  # type: ignore[union-attr]


def test_a_policy_against_itself_shows_no_difference() -> None:
    draws = np.zeros((500, 2))
    found = comparisons([0.7, 0.7], draws, 0, lower_is_better=False)[1]
    assert found is not None
    assert (found.p, found.p_holm, found.said, found.detectable) == (1.0, 1.0, "no difference shown", 0.0)


def test_alike_policies_are_called_different_as_rarely_as_promised_and_a_difference_is_seen_as_often() -> None:
    """Three rivals as good as the baseline: at most 5 % of experiments may say otherwise; at `detectable`, 80 % must."""
    rng = np.random.default_rng(0)
    rows, runs = 300, 150
    cluster = np.arange(rows, dtype=np.int32)
    wrong = held = seen = 0
    for run in range(runs):
        hard = rng.random(rows)
        base, *rivals = ((rng.random(rows) < 0.6 + 0.3 * hard).astype(float) for _ in range(4))
        drawn = joint_draws([Sample(one, cluster) for one in (base, *rivals)], rows, 400, run)
        found = comparisons([one.mean() for one in (base, *rivals)], drawn, 0, lower_is_better=False)[1:]
        wrong += any(one.said != "no difference shown" for one in found if one is not None)
        held += sum(one.low <= 0.0 <= one.high for one in found if one is not None)
        better = (rng.random(rows) < 0.6 + 0.3 * hard + found[0].detectable).astype(float)  # type: ignore[union-attr]
        again = joint_draws([Sample(one, cluster) for one in (base, better, *rivals[1:])], rows, 400, run)
        means = [one.mean() for one in (base, better, *rivals[1:])]
        seen += comparisons(means, again, 0, lower_is_better=False)[1].said == "better"  # type: ignore[union-attr]
    assert wrong / runs < 0.09
    assert 0.91 < held / (3 * runs) < 0.98
    assert 0.72 < seen / runs < 0.95


def two_groups(rng: np.random.Generator, rows: int, gap: float) -> OutcomesTable:
    """Groups a and b; the model is right on 80 % of a and on `gap` less of b."""
    group = rng.integers(0, 2, rows)
    right = rng.random(rows) < 0.8 - gap * group
    made = table([1] * rows, {"m": columns(right.astype(int).tolist(), [0.9] * rows)})
    return with_meta(made, [{"group": "ab"[each]} for each in group])


def ground(made: OutcomesTable, seed: int = 0) -> Ground:
    return Ground(Traffic(made), np.arange(len(made), dtype=np.int32), len(made), 400, seed)


def unfair(made: OutcomesTable, seed: int = 0) -> tuple[float, float]:
    found = fairness(Accuracy(), made.correct("m").astype(float), by_meta(made, "group"), ground(made, seed))
    assert found.gap is not None
    return found.gap.low, found.gap.high


def test_the_gap_between_two_groups_holds_the_truth() -> None:
    rng = np.random.default_rng(6)
    held = 0
    for run in range(100):
        low, high = unfair(two_groups(rng, 400, 0.15), run)
        held += low <= 0.15 <= high
    assert held / 100 > 0.88


def test_small_groups_are_not_judged() -> None:
    rng = np.random.default_rng(7)
    made = with_meta(two_groups(rng, 100, 0.0), [{"group": "rare" if at < 29 else "common"} for at in range(100)])
    found = fairness(Accuracy(), made.correct("m").astype(float), by_meta(made, "group"), ground(made))
    by_name = {one.group: one for one in found.groups}
    assert by_name["rare"].value is None
    assert by_name["rare"].why == "too small to say: 29 units, 30 are needed"
    assert by_name["common"].value is not None
    assert found.gap is None


def test_groups_are_counted_in_users_when_rows_belong_to_users() -> None:
    """60 rows of 10 users are 10 units, however many rows they are."""
    made = two_groups(np.random.default_rng(8), 120, 0.0)
    made = with_meta(made, [{"group": "a" if at < 60 else "b", "user": at // 6} for at in range(120)])
    policies = {"one": Contender(Use("m")), "two": Contender(Use("m"))}
    found = experiment(made, policies, cluster="meta.user", groups=("group",), draws=200)
    assert (found.units, found.rows) == (20, 120)
    assert [one.units for one in found.arms[0].fairness[0].groups] == [10, 10]
    assert all(one.value is None for one in found.arms[0].fairness[0].groups)
    assert any("only 20 independent units" in line for line in found.caution)


def test_a_policy_that_helps_one_group_only_widens_the_gap() -> None:
    """Both models are right on 80 of 100 rows of a and 60 of b; the second turns 10 rows of b from right to wrong."""
    made = two_groups(np.random.default_rng(9), 200, 0.0)
    group = np.repeat([0, 1], 100)
    first = np.concatenate([np.arange(100) < 80, np.arange(100) < 60])
    second = np.concatenate([np.arange(100) < 80, np.arange(100) < 50])
    models = {name: columns(right.astype(int).tolist(), [0.9] * 200) for name, right in (("m", first), ("n", second))}
    made = with_meta(table([1] * 200, models), [{"group": "ab"[each]} for each in group])
    found = experiment(made, {"m": Contender(Use("m")), "n": Contender(Use("n"))}, groups=("group",), draws=1000)
    wider = found.arm("n").fairness[0].wider
    assert wider is not None
    assert found.arm("m").fairness[0].wider is None
    assert (wider.mean, wider.n) == (pytest.approx(0.10), 200)
    assert 0.03 < wider.low < 0.07
    assert 0.13 < wider.high < 0.18
    told = "groups of meta.group lie 20.00 points apart under m (a over b); further apart under n"
    assert told in found.reasons
