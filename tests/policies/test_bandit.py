"""The bandit's draw: chances, propensities, floors, the guard, and segments that lean on all traffic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rheostat.policies import Bandit, parse_policy
from rheostat.policies.bandit import Seen, drawn, floored, guarded
from rheostat.policies.posterior import Posterior, best_chances, posterior
from rheostat.types import Call, Context, Request

ARMS = ("a", "b", "c")


def bandit(**fields: Any) -> Bandit:
    policy = parse_policy({"bandit": {"arms": list(ARMS)} | fields})
    assert isinstance(policy, Bandit)
    return policy


def choose(policy: Bandit, i: int, signals: dict[str, float] | None = None, **meta: Any) -> Call:
    call = policy.decide(Context(Request(id=str(i), data="x", meta=meta), signals or {}), ())
    assert isinstance(call, Call)
    return call


SEEN = {"a": {"n": 40, "mean": 0.7, "var": 0.2}, "b": {"n": 30, "mean": 0.65, "var": 0.2}, "c": {"n": 50, "mean": 0.2}}


@pytest.mark.parametrize("unit", [True, False])
def test_thompson_chances_are_those_of_sampling(unit: bool) -> None:
    mean, sd = np.array([0.62, 0.6, 0.55, 0.3, 0.5]), np.array([0.01, 0.03, 0.1, 0.02, 0.25])
    rng = np.random.default_rng(0)
    if unit:
        strength = mean * (1 - mean) / sd**2 - 1
        samples = rng.beta(mean * strength, (1 - mean) * strength, (200_000, 5))
    else:
        samples = rng.normal(mean, sd, (200_000, 5))
    expected = np.bincount(samples.argmax(axis=1), minlength=5) / 200_000
    assert best_chances(Posterior(mean, sd, unit)) == pytest.approx(expected, abs=0.006)


def test_the_logged_propensity_is_the_frequency_of_the_choice() -> None:
    policy = bandit(seen=SEEN, floor=0.02)
    calls = [choose(policy, i) for i in range(6000)]
    assert sum(policy.shares()) == pytest.approx(1.0)
    for arm, share in zip(ARMS, policy.shares(), strict=True):
        mine = [call.propensity for call in calls if call.models == (arm,)]
        assert set(mine) == {float(share)}
        assert len(mine) / 6000 == pytest.approx(share, abs=0.02)
    assert policy.shares()[0] > policy.shares()[1] > policy.shares()[2] >= 0.02


def test_nothing_known_is_an_even_draw_and_everything_known_is_the_best() -> None:
    assert bandit(rewards="unit").shares() == pytest.approx([1 / 3] * 3)
    sure = {arm: {"n": 1e6, "mean": mean, "var": 0.1} for arm, mean in zip(ARMS, (0.1, 0.9, 0.2), strict=True)}
    assert bandit(seen=sure).shares()[1] == pytest.approx(1.0)
    assert bandit(seen=sure, rewards="any").shares()[1] == pytest.approx(1.0)


def test_a_segment_learns_on_its_own_and_leans_on_all_traffic() -> None:
    code = {"a": {"n": 200, "mean": 0.3, "var": 0.2}, "b": {"n": 200, "mean": 0.8, "var": 0.16}}
    policy = bandit(seen=SEEN, segments={"code": code}, segment="task")
    assert policy.shares("code")[1] > 0.95
    assert policy.shares("never seen").tolist() == policy.shares().tolist()
    assert choose(policy, 1, task="code").reason.endswith("for task code")
    few = bandit(seen=SEEN, segments={"x": {"a": {"n": 1, "mean": 0.0}}}, segment="task")
    assert few.shares("x")[0] > few.shares("x")[2]


def test_epsilon_and_linucb_explore_by_epsilon_alone() -> None:
    greedy = bandit(seen=SEEN, algorithm="epsilon", epsilon=0.3, guard=1.0)
    assert greedy.shares() == pytest.approx([0.8, 0.1, 0.1])
    slopes = {
        arm: {"precision": [[1000.0, 0.0], [0.0, 1000.0]], "moment": [500.0, 300.0 * sign]}
        for arm, sign in zip(ARMS, (1, -1, 0), strict=True)
    }
    linear = bandit(algorithm="linucb", features=["d"], linear=slopes, epsilon=0.3, guard=1.0)
    assert choose(linear, 1, {"d": 1.0}).propensity in (pytest.approx(0.8), pytest.approx(0.1))
    assert linear.shares(values=[1.0]).argmax() == 0
    assert linear.shares(values=[-1.0]).argmax() == 1
    with pytest.raises(KeyError):
        choose(linear, 1)


def test_the_guard_keeps_the_expected_reward_near_the_best_single_model() -> None:
    known = {"a": {"n": 1e6, "mean": 0.8, "var": 0.1}, "b": {"n": 1e6, "mean": 0.2, "var": 0.1}}
    policy = bandit(arms=["a", "b"], seen=known, algorithm="epsilon", epsilon=0.6)
    mean = policy.believed().mean
    assert policy.shares() @ mean == pytest.approx(0.98 * mean[0], abs=0.003)
    assert bandit(arms=["a", "b"], seen=known, algorithm="epsilon", epsilon=0.6, guard=1.0).shares() @ mean < 0.7
    unsure = {"a": {"n": 5, "mean": 0.8, "var": 0.1}, "b": {"n": 5, "mean": 0.4, "var": 0.1}}
    free, held = (bandit(seen=unsure, guard=guard).shares().tolist() for guard in (1.0, 0.02))
    assert free == held  # an early favourite keeps nobody from being tried


SHARES = st.lists(st.floats(0.001, 1), min_size=2, max_size=6).map(lambda x: np.array(x) / sum(x))


@given(SHARES, st.data())
def test_guard_floor_and_draw_hold_for_any_chances(shares: Any, data: st.DataObject) -> None:
    k = len(shares)
    mean = np.array(data.draw(st.lists(st.floats(-2, 2), min_size=k, max_size=k)))
    best = int(mean.argmax())
    sd = np.array(data.draw(st.lists(st.floats(0.001, 1), min_size=k, max_size=k)))
    safe = guarded(floored(shares, 0.01), Posterior(mean, sd, False), best, 0.02)
    assert safe.sum() == pytest.approx(1.0)
    assert safe.min() >= 0.0
    apart = safe - 0.98 * (np.arange(k) == best)
    assert mean[best] <= 0 or apart @ mean + 4 * np.sqrt(apart**2 @ sd**2) >= -1e-6
    arm = drawn(shares, data.draw(st.floats(0, 1, exclude_max=True)))
    assert shares[arm] > 0


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1), st.floats(0, 0.25)), min_size=2, max_size=5))
def test_beliefs_are_finite_for_any_snapshot(rows: list[tuple[float, float, float]]) -> None:
    seen = np.array(rows)
    for rewards in ("unit", "any"):
        for here in (None, seen):
            believed = posterior(seen, here, 20.0, rewards)
            shares = best_chances(believed)
            assert np.isfinite(shares).all()
            assert shares.sum() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"arms": ["a"]}, "at least two"),
        ({"arms": ["a", "a"]}, "twice"),
        ({"algorithm": "linucb"}, "needs `features`"),
        ({"algorithm": "ucb"}, "algorithm"),
        ({"floor": 0.5}, "`floor`"),
        ({"prior": 0}, "`prior`"),
        ({"epsilon": 2}, "epsilon"),
        ({"seen": {"a": {"n": -1, "mean": 0.5}}}, "`n` must be 0"),
        ({"seen": {"a": {"n": 1, "mean": float("nan")}}}, "`mean`"),
        ({"algorithm": "linucb", "features": ["d"], "linear": {"a": {"precision": [[1]], "moment": [1]}}}, "size of"),
    ],
)
def test_settings_that_make_no_sense_are_refused(fields: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        bandit(**fields)


def test_a_snapshot_is_plain_numbers() -> None:
    assert Seen(3.0, 0.5) == bandit(seen={"a": {"n": 3, "mean": 0.5}}).seen["a"]
