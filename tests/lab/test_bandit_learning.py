"""What a bandit learns: reward by reward, from outcomes, from records, and through its file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from rheostat.chance import chance
from rheostat.cli.given_policy import written_policy
from rheostat.errors import ConfigError, NotFound
from rheostat.lab.bandit import Learner, from_records, warm_start
from rheostat.lab.bandit_file import read_bandit, write_bandit
from rheostat.lab.outcomes import ModelColumns, OutcomesTable
from rheostat.policies.bandit import ALL, Bandit, Seen, drawn
from rheostat.telemetry import JsonlSink
from rheostat.types import Feedback, RouteRecord, Step

ARMS = ("fast", "large")


def test_rewards_add_up_to_means_and_variances_in_any_order() -> None:
    rewards = [("fast", 0.2, "x"), ("fast", 0.6, "y"), ("large", 1.0, "x"), ("fast", 0.4, "x")]
    policies = []
    for order in (rewards, rewards[::-1]):
        learner = Learner(Bandit(arms=ARMS, segment="task"))
        for arm, reward, segment in order:
            learner.learn(arm, reward, segment)
        policies.append(learner.policy())
    assert policies[0].seen["fast"].n == 3
    assert policies[0].seen["fast"].mean == pytest.approx(0.4)
    assert policies[0].seen["fast"].var == pytest.approx(np.var([0.2, 0.6, 0.4]))
    assert policies[0].segments["x"]["fast"].mean == pytest.approx(0.3)
    assert policies[1].seen["fast"].mean == pytest.approx(0.4)
    again = Learner(policies[0])
    again.learn("fast", 0.8, "x")
    assert again.policy().seen["fast"].mean == pytest.approx(0.5)


def test_a_bandit_that_learns_finds_each_tasks_best_model_and_linucb_the_side() -> None:
    truth = {("fast", "x"): 0.8, ("large", "x"): 0.3, ("fast", "y"): 0.2, ("large", "y"): 0.9}
    starts: tuple[Any, ...] = (
        Bandit(arms=ARMS, segment="task"),
        Bandit(arms=ARMS, segment="task", rewards="any"),
        Bandit(arms=ARMS, algorithm="epsilon", segment="task"),
        Bandit(arms=ARMS, algorithm="linucb", features=("is_x",)),
    )
    for start in starts:
        policy = start
        learner, late = Learner(policy), []
        for i in range(600):
            task = "x" if chance("task", str(i)) < 0.5 else "y"
            values = [float(task == "x")] if policy.features else []
            arm = ARMS[drawn(policy.shares(task, values), chance("draw", str(i)))]
            reward = float(chance("reward", f"{i}{arm}") < truth[arm, task])
            learner.learn(arm, reward, task if policy.segment else ALL, values)
            if not i % 10:
                policy = learner.policy()
            late += [truth[arm, task]] if i >= 400 else []
        assert np.mean(late) > 0.8, policy.algorithm


def table(n: int = 300) -> OutcomesTable:
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, n).astype(np.int32)

    def column(accuracy: float) -> ModelColumns:
        label = np.where(rng.random(n) < accuracy, truth, 1 - truth).astype(np.int32)
        return ModelColumns(label, np.full(n, 0.9), np.full(n, 0.01), np.full(n, 2.0), np.zeros(n, np.int8))

    meta = np.array(['{"task":"x"}' if i % 3 else '{"task":"y"}' for i in range(n)], object)
    ids = np.array([str(i) for i in range(n)], object)
    return OutcomesTable(
        ids, np.zeros(n, np.int8), truth, ("a", "b"), {"fast": column(0.6), "large": column(0.9)}, meta=meta
    )


def test_labelled_outcomes_are_pseudo_counts_that_live_rewards_can_overrule() -> None:
    found = warm_start(Bandit(arms=ARMS, segment="task"), table(), weight=0.5, most=100)
    assert found.taken == {"fast": 300, "large": 300}
    assert found.policy.seen["large"].n == pytest.approx(100)
    assert found.policy.seen["large"].mean == pytest.approx(0.9, abs=0.04)
    assert set(found.policy.segments) == {"x", "y"}
    assert found.policy.shares()[1] > 0.95
    priced = warm_start(Bandit(arms=ARMS, rewards="any"), table(), price=0.1)
    assert priced.policy.seen["large"].mean == pytest.approx(0.7, abs=0.04)
    late = Bandit(arms=(*ARMS, "new"), seen={"fast": Seen(10, 0.5), "new": Seen(1, 0.5)})
    assert warm_start(late, table()).taken == {"large": 300}
    with pytest.raises(ValueError, match="the table has no model 'other'; it has fast, large"):
        warm_start(Bandit(arms=("fast", "other")), table())
    with pytest.raises(ValueError, match="keeps no signals"):
        warm_start(Bandit(arms=ARMS, algorithm="linucb", features=("d",)), table())


@pytest.mark.parametrize(
    ("arm", "reward", "word"), [("other", 1.0, "no arm"), ("fast", float("nan"), "nan"), ("fast", 1.5, "rewards: any")]
)
def test_rewards_that_make_no_sense_are_refused(arm: str, reward: float, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        Learner(Bandit(arms=ARMS)).learn(arm, reward)


def record(policy: Bandit, i: int, **changes: Any) -> RouteRecord:
    shares = policy.shares("x")
    arm = drawn(shares, chance("record", str(i)))
    step = Step(0.0, "call", (policy.arms[arm],), "", float(shares[arm]))
    fields: dict[str, Any] = {"id": f"r{i}", "wall": float(i), "route": "default", "status": "ok", "label": "a"}
    fields |= {"route_type": "bandit", "steps": (step,), "meta": {"task": "x"}, "cost": 1.0}
    return RouteRecord(**(fields | changes))


def test_records_are_taken_in_once_and_only_the_bandits_own(tmp_path: Path) -> None:
    policy = Bandit(arms=ARMS, segment="task")
    records = [record(policy, i) for i in range(40)]
    records += [record(policy, 50, route_type="rules"), record(policy, 51, forced=True), record(policy, 52)]
    judged = [Feedback(request_id=f"r{i}", wall=100.0 + i, label="a" if i % 2 else "b") for i in range(52)]
    path = tmp_path / "r.jsonl"
    sink = JsonlSink(path)
    sink.write([*records, *judged])
    first = from_records(policy, path)
    assert sum(first.taken.values()) == 40
    assert first.left_out == {"not this bandit's choice": 2, "no judgement": 1}
    assert first.policy.until == 139.0
    assert sum(one.n for one in first.policy.segments["x"].values()) == 40
    again = from_records(first.policy, path)
    assert not again.taken
    assert again.policy == first.policy
    sink.write([Feedback(request_id="r52", wall=200.0, reward=0.5)])
    sink.close()
    assert sum(from_records(first.policy, path).taken.values()) == 1
    assert from_records(structs.replace(policy, arms=("fast", "b")), path).left_out["a model that is no arm any more"] > 0


def test_the_file_is_plain_and_reads_back(tmp_path: Path) -> None:
    known = warm_start(Bandit(arms=ARMS, segment="task", floor=0.01), table()).policy
    path = tmp_path / "bandit.yaml"
    version = write_bandit(known, path, versions={"fast": "2"}, notes=("made for a test",))
    read, versions = read_bandit(path)
    assert versions == {"fast": "2"}
    assert read.seen["large"].mean == pytest.approx(known.seen["large"].mean)
    assert read.shares("x") == pytest.approx(known.shares("x"), abs=1e-6)
    assert version in path.read_text()
    served = written_policy("{file: bandit.yaml}", str(tmp_path), "config")
    assert served == read
    with pytest.raises(NotFound, match="there is no file"):
        read_bandit(tmp_path / "none.yaml")
    (tmp_path / "bad.yaml").write_text("policy: {bandit: {arms: [a]}}")
    with pytest.raises(ConfigError, match="at least two"):
        read_bandit(tmp_path / "bad.yaml")
    (tmp_path / "fast.yaml").write_text("policy: fast")
    with pytest.raises(NotFound, match="holds no bandit"):
        read_bandit(tmp_path / "fast.yaml")
