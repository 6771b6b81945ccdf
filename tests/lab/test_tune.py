from __future__ import annotations

import itertools
from pathlib import Path

import msgspec
import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from lab_tables import columns, synthetic, table

from rheostat.lab.curve import cascade_curve
from rheostat.lab.figures import figures
from rheostat.lab.goal import Goal, GoalError
from rheostat.lab.options import KINDS, options
from rheostat.lab.outcomes import OutcomesTable
from rheostat.lab.policy_file import form, policy_document, policy_form, version_of, write_policy_file
from rheostat.lab.replay import replay
from rheostat.lab.tune import by_cost, choose_policy, kept, tune
from rheostat.policies import Arm, Binary, Blend, Cascade, Chain, Delegate, Policy, Split, Use, parse_policy
from rheostat.types import Answer, Context, Decision, Outcome
from rheostat.types.duration import Duration

STAGES = ("small", "large")


def tied() -> OutcomesTable:
    return table([1, 1, 0, 1, 0], {
        "small": columns([1, 1, 1, 1, 1], [0.9, 0.9, 0.9, 0.5, 0.5], cost=1),
        "large": columns([1, 1, 0, 1, 0], cost=8),
    }, split="dev")  # fmt: skip


def test_a_budget_is_kept_with_ties_and_for_every_order_of_rows() -> None:
    for order in itertools.islice(itertools.permutations(range(5)), 0, 120, 17):
        policy = choose_policy(tied().subset(np.array(order)), Goal(max_share=0.4, sure=False), STAGES, "cascade")
        assert policy == Cascade(stages=STAGES, threshold=0.9)


def test_the_best_accuracy_is_the_default_and_the_cheaper_of_equals_wins() -> None:
    made = tied()
    assert choose_policy(made, Goal(sure=False), STAGES, "cascade") == Use("large")
    same = table([1, 1], {"small": columns([1, 1], [0.9, 0.5], cost=1), "large": columns([1, 1], cost=8)}, split="dev")
    assert choose_policy(same, Goal(sure=False), STAGES, "cascade") == Cascade(stages=STAGES, threshold=0.5)


def test_a_quality_to_reach_takes_the_cheapest_that_reaches_it() -> None:
    found = choose_policy(tied(), Goal(min_quality=0.8, sure=False), STAGES, "cascade")
    assert found == Cascade(stages=STAGES, threshold=0.9)
    assert choose_policy(tied(), Goal(min_relative_quality=0.6, sure=False), STAGES, "cascade") == Cascade(
        stages=STAGES, threshold=0.5
    )


def test_an_impossible_goal_says_what_can_be_reached() -> None:
    with pytest.raises(GoalError, match=r"at least 99.00%.*best accuracy is 80.00% \(share 40.0%"):
        choose_policy(tied(), Goal(min_quality=0.99, max_share=0.5, sure=False), STAGES, "cascade", "dev")
    with pytest.raises(GoalError, match="set `sure: false`"):
        choose_policy(synthetic(200), Goal(min_quality=0.95), STAGES, "cascade", "dev")
    with pytest.raises(GoalError, match="least cost 1"):
        choose_policy(tied(), Goal(max_cost=0.5), STAGES, "cascade", "dev")
    with pytest.raises(GoalError, match="least P95"):
        choose_policy(tied(), Goal(max_latency=Duration(0.001)), STAGES, "cascade", "dev")


def test_senseless_goals_are_refused() -> None:
    for wrong in ({"max_share": 20}, {"min_quality": -0.1}, {"min_relative_quality": 0.0}, {"max_cost": -1}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Goal(**wrong)
    assert Goal(max_share=0.2, max_latency=Duration(0.05)).words() == (
        "at most 20.0% calls of the last model and P95 latency of at most 50 ms"
    )


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.05, 0.2, 0.5]), st.sampled_from(["cascade", "cascade+blend", "delegate"]))
def test_the_chosen_setting_keeps_the_budget_where_it_was_chosen(seed: int, share: float, kind: str) -> None:
    made = synthetic(300, seed=seed)
    policy = choose_policy(made, Goal(max_share=share), STAGES, kind)
    assert replay(policy, made).share("large") <= share


@pytest.mark.parametrize("kind", KINDS)
def test_the_figures_of_a_setting_are_those_of_its_policy(kind: str) -> None:
    made = synthetic(200, seed=3)
    for batch in options(made, STAGES, kind)[:3]:
        for index in range(0, len(batch.quality), max(1, len(batch.quality) // 7)):
            policy = batch.build(index)
            played = replay(policy, made)
            assert played.correct.mean() == pytest.approx(batch.quality[index])
            if not isinstance(policy, Use):
                assert played.called[:, 1].mean() == pytest.approx(batch.share[index])
                assert played.cost.mean() == pytest.approx(batch.cost[index])
                assert played.cost.var() == pytest.approx(batch.cost_variance[index], abs=1e-9)
                assert played.latency_quantiles((0.95,))[0] == pytest.approx(batch.slow(index, 0.95))


def test_a_bound_is_stricter_than_a_mean() -> None:
    batch = options(synthetic(500), STAGES, "cascade")[0]
    for goal in (Goal(max_share=0.3), Goal(min_quality=0.85), Goal(min_relative_quality=0.97), Goal(max_cost=8.0),
                 Goal(max_latency=Duration(0.08))):  # fmt: skip
        sure, plain = kept(batch, goal), kept(batch, msgspec.structs.replace(goal, sure=False))
        assert (plain | ~sure).all()
        assert plain.sum() > sure.sum() > 0


def test_tuning_reports_on_fresh_rows_with_its_rivals() -> None:
    made = synthetic(4000, seed=1)
    found = tune(made, Goal(max_share=0.3), draws=500)
    assert found.chosen.split == "dev"
    assert found.reported.split == "test"
    fresh = made.select(split="test")
    played = replay(found.policy, fresh)
    assert found.reported.n == len(fresh)
    assert found.reported.quality.mean == pytest.approx(played.correct.mean())
    assert found.reported.share.mean == pytest.approx(played.share("large"))
    small, large = fresh.correct("small").mean(), fresh.correct("large").mean()
    assert found.reported.single("small").quality.mean == pytest.approx(small)
    share = found.reported.share.mean
    assert found.reported.random == pytest.approx((1 - share) * small + share * large)
    assert found.reported.oracle == pytest.approx((fresh.correct("small") | fresh.correct("large")).mean())
    assert found.reported.vs_first.mean == pytest.approx(played.correct.mean() - small)
    assert found.reported.vs_first.better
    assert found.reported.vs_random.better
    assert found == tune(made, Goal(max_share=0.3), draws=500)


def test_rows_without_the_strong_models_outcome_are_named_and_left_out_for_everybody() -> None:
    n = 500
    rng = np.random.default_rng(0)
    failure = np.zeros(n, int)
    failure[:40] = -1
    made = table(
        rng.integers(0, 2, n).tolist(),
        {
            "small": columns(rng.integers(0, 2, n), rng.random(n)),
            "large": columns(rng.integers(0, 2, n), failure=failure, cost=9),
        },
    )
    found, _ = figures(Cascade(stages=STAGES, threshold=0.0), made, STAGES, split="test")
    assert found.left_out == {"no outcome of large recorded": 40}
    assert found.n == 460
    assert {alone.quality.n for alone in found.alone} == {460}
    assert found.extreme == "no"
    every, _ = figures(Use("large"), made, STAGES, split="test")
    assert every.extreme == "every"


def test_a_moved_share_is_pointed_out() -> None:
    rng = np.random.default_rng(0)
    n = 2000
    confidence = np.where(np.arange(n) < 1000, rng.random(n), rng.random(n) * 0.6)
    small = columns((rng.random(n) < confidence).astype(int), confidence)
    made = table([1] * n, {"small": small, "large": columns([1] * n, cost=9)},
                 split=["dev"] * 1000 + ["test"] * 1000)  # fmt: skip
    found = tune(made, Goal(max_share=0.3), draws=300)
    assert any("moved from" in note for note in found.notes)
    assert any("budget of 30.0% is not kept on test" in note for note in found.notes)


def test_an_empty_split_or_a_wrong_kind_teaches() -> None:
    with pytest.raises(ValueError, match="no rows in the split 'test'"):
        tune(tied(), Goal())
    with pytest.raises(ValueError, match="known: cascade"):
        options(synthetic(10), STAGES, "cascad")
    with pytest.raises(ValueError, match="between two models"):
        options(synthetic(10), ("small", "large", "small"), "delegate")


def test_stages_go_by_cost() -> None:
    assert by_cost(synthetic(10)) == STAGES
    made = table(
        [0], {"b": columns([0], cost=1, latency=2), "a": columns([0], cost=1, latency=1), "c": columns([0], cost=0)}
    )
    assert by_cost(made) == ("c", "a", "b")


def test_three_stages_are_tuned_with_enough_escalations() -> None:
    made = synthetic(600)
    whole = OutcomesTable(made.ids, made.split, made.truth, made.labels,
                          {**made.columns, "huge": columns(made.truth, cost=90)})  # fmt: skip
    found = tune(whole, Goal(max_share=0.3), draws=200)
    assert isinstance(found.policy, Cascade)
    assert found.policy.max_escalations == 2
    curve = cascade_curve(whole.select(split="dev"), ("small", "large", "huge"))
    assert found.chosen.quality.mean in curve.quality


# ------------------------------------------------------------------------------------------------------ policy files


class Own(msgspec.Struct, frozen=True):
    threshold: float = 0.5
    inner: tuple[Policy, ...] = ()

    def decide(self, ctx: Context, history: tuple[Outcome, ...]) -> Decision:
        return Answer({outcome.model: 1.0 for outcome in history}, ctx.request.id)


@pytest.mark.parametrize(
    "policy",
    [
        Use("small"),
        Cascade(stages=STAGES, threshold=0.1 + 0.2, blend=0.3),
        Cascade(stages=("a", "b", "c"), threshold=(0.5, 1e-7), hysteresis=(0.4, 0.6), max_escalations=2),
        Blend(weights={"a": 0.25, "b": 0.75}),
        Delegate(weak="a", strong="b", low=0.1),
        Chain(policies=(Split(arms=(Arm(use=Use("a"), share=1), Arm(use=Blend(weights={"b": 1}), share=2))), Use("b"))),
        Binary(signal="length", threshold=5, weak=Use("a"), strong=Cascade(stages=STAGES, threshold=0.5)),
        Own(0.25, (Use("a"), Own())),
    ],
)
def test_a_policy_survives_its_form(policy: Policy) -> None:
    assert parse_policy(yaml.safe_load(yaml.safe_dump(form(policy)))) == policy
    assert parse_policy(yaml.safe_load(policy_form(policy))) == policy


def test_the_policy_file_says_everything_and_its_version_is_its_content(tmp_path: Path) -> None:
    made = synthetic(2000)
    found = tune(made, Goal(max_share=0.2), draws=200)
    version = write_policy_file(found, made, tmp_path / "p.yaml")
    read = yaml.safe_load((tmp_path / "p.yaml").read_text())
    assert read["kind"] == "rheostat-policy"
    assert read["version"] == version == version_of(read)
    assert parse_policy(read["policy"]) == found.policy
    assert read["goal"] == {"max_share": 0.2}
    assert read["data_hash"] == made.data_hash
    assert read["models"] == [{"name": "small", "version": "1"}, {"name": "large", "version": "1"}]
    assert read["expected"]["split"] == "test"
    assert read["expected"]["n"] == found.reported.n
    low, mean, high = (read["expected"]["quality"][key] for key in ("low", "mean", "high"))
    assert low <= mean <= high
    assert version_of({**read, "goal": {"max_share": 0.3}}) != version
    assert policy_document(found, made)["version"] == version
    assert [path.name for path in tmp_path.iterdir()] == ["p.yaml"]
