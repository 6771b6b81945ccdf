"""Any policies on the same traffic: the same rows for all, a verdict in words, a page."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lab_tables import columns, synthetic, table
from typer.testing import CliRunner, Result

from experiment.traffic import scored, with_meta
from rheostat.cli.app import app
from rheostat.lab.contribution import contribution
from rheostat.lab.experiment import Auc, Contender, Experiment, LogLoss, TopK, experiment
from rheostat.lab.experiment.page import render
from rheostat.lab.outcomes import FAILURE_KINDS, OutcomesTable
from rheostat.lab.outcomes_file import save
from rheostat.lab.segments import by_meta
from rheostat.policies import Blend, Cascade, Review, Use
from rheostat.resilience.ladder import FallbackSettings, Preset

CRASHED = 1 + FAILURE_KINDS.index("crashed")
TWO = {"small": Contender(Use("small")), "large": Contender(Use("large"))}


def traffic(rows: int = 1500, seed: int = 0) -> OutcomesTable:
    """Two models, groups, users and what a right answer earns."""
    made = synthetic(rows, seed=seed)
    rng = np.random.default_rng(seed + 1)
    return with_meta(
        made,
        [
            {"group": "中文" if rng.random() < 0.4 else "english", "user": at // 5, "value": float(rng.random())}
            for at in range(rows)
        ],
    )


def test_a_better_policy_is_called_better_on_the_same_rows_and_costs_what_it_calls() -> None:
    made = traffic()
    policies = {**TWO, "cascade": Contender(Cascade(stages=("small", "large"), threshold=0.8))}
    found = experiment(made, policies, groups=("group",), draws=400)
    assert (found.baseline, found.metric, found.rows, found.units) == ("small", "accuracy", 1500, 1500)
    assert found.arm("large").versus.said == "better"  # type: ignore[union-attr]
    assert found.arm("large").cost.mean == 20.0
    assert found.arm("small").metric.mean == pytest.approx(made.correct("small").mean())
    cascade = found.arm("cascade")
    assert cascade.cost.mean == pytest.approx(1.0 + 20.0 * cascade.calls["large"])
    assert found.headline.startswith(("large beats small on accuracy", "cascade beats small on accuracy"))
    assert [one.group for one in cascade.fairness[0].groups] == ["english", "中文"]
    with pytest.raises(KeyError, match="no policy 'other'"):
        found.arm("other")


def test_the_same_policy_twice_shows_no_difference_and_says_what_would_be_seen() -> None:
    found = experiment(traffic(), {"one": Contender(Use("small")), "two": Contender(Use("small"))}, draws=300)
    assert found.headline.startswith("No policy is shown to differ from one on accuracy.")
    assert found.arm("two").versus.said == "no difference shown"  # type: ignore[union-attr]
    worse = experiment(traffic(), TWO, baseline="large", draws=300)
    assert worse.headline == "No policy is shown to beat large on accuracy; small is worse."
    assert "it costs 95% less" not in " ".join(worse.reasons)


def test_lower_is_better_where_the_metric_says_so() -> None:
    found = experiment(traffic(), TWO, metrics=(LogLoss(),), draws=300)
    assert found.lower_is_better
    large = found.arm("large")
    assert large.metric.mean < found.arm("small").metric.mean
    assert large.versus.said == "better"  # type: ignore[union-attr]
    assert large.versus.mean < 0  # type: ignore[union-attr]


def test_rows_that_one_policy_cannot_use_are_left_out_for_all_and_counted() -> None:
    truth = [1] * 40 + [-1] * 5
    small = columns([1] * 45, [0.9] * 45, failure=[CRASHED] * 3 + [0] * 42)
    made = table(truth, {"small": small, "large": columns([1] * 44 + [-1], [0.9] * 45)})
    found = experiment(made, TWO, draws=100)
    assert found.rows == 37
    assert found.left_out == {"no right label given": 5, "small failed: crashed": 3}
    assert any("8 of 45 rows are left out" in line for line in found.caution)


def test_rows_that_go_to_a_person_are_left_out_for_all_and_said_so() -> None:
    made = traffic(400)
    asks = Contender(Review(policy=Use("small"), below=0.8))
    found = experiment(made, {**TWO, "asks": asks}, draws=100)
    count = int((made.model("small").confidence < 0.8).sum())
    assert found.left_out == {"not answered by every policy": count}
    assert any(f"asks: {count} rows went to a person" in line for line in found.caution)
    with pytest.raises(ValueError, match=r"policy asks answered none of 400 rows: .*'for review': 400"):
        experiment(made, {**TWO, "asks": Contender(Review(policy=Use("small"), below=1.0))}, draws=100)


def test_what_is_missing_is_named() -> None:
    made = traffic(60)
    with pytest.raises(ValueError, match="at least two policies, got one"):
        experiment(made, {"one": Contender(Use("small"))})
    with pytest.raises(ValueError, match="no policy 'other' to compare with; there are: small, large"):
        experiment(made, TWO, baseline="other")
    with pytest.raises(ValueError, match="a policy names giant; the table has small, large"):
        experiment(made, {**TWO, "giant": Contender(Use("giant"))})
    with pytest.raises(ValueError, match=r"no row has meta\.age; fields there are: group, user, value"):
        experiment(made, TWO, groups=("age",))
    with pytest.raises(ValueError, match="the table kept no meta"):
        experiment(replace(made, meta=None), TWO, cluster="user")
    with pytest.raises(ValueError, match="every metric once: AUC, AUC"):
        experiment(made, TWO, metrics=(Auc("l0"), Auc("l0")))
    with pytest.raises(ValueError, match="no row can be used: the table is empty"):
        experiment(made.subset(np.zeros(0, int)), TWO)
    with pytest.raises(ValueError, match="no right label given"):
        experiment(replace(made, truth=np.full(60, -1, np.int32)), TWO)


def test_a_collapsed_blend_and_a_blind_ranking_are_said_so() -> None:
    rng = np.random.default_rng(3)
    truth = rng.integers(0, 2, 200)
    made = table(truth.tolist(), {"small": scored(np.where(truth == 1, 0.8, 0.3)), "blind": scored([0.5] * 200)})
    made = with_meta(made, [{"user": at // 4} for at in range(200)])
    blend = Contender(Blend(weights={"small": 0.99, "blind": 0.01}))
    policies = {"blind": Contender(Use("blind")), "blend": blend}
    found = experiment(made, policies, metrics=(TopK(1, "user", "yes"), Auc("yes")), draws=200)
    assert found.units == 50  # users, because the metric ranks within them
    assert found.arm("blend").collapsed == "small"
    assert "yes among top 1 per user: every row has the same score, so the ranking is blind" in found.arm("blind").notes
    assert found.arm("blind").metrics["AUC"].mean == 0.5
    assert any("blend has collapsed: small" in line for line in found.caution)


def test_rows_that_something_was_chosen_on_are_warned_about() -> None:
    found = experiment(traffic(), TWO, draws=100)
    assert any("rows of train and dev are among these" in line for line in found.caution)
    fresh = experiment(traffic().select(split="test"), TWO, draws=100)
    assert not any("are among these" in line for line in fresh.caution)


def test_a_preset_of_the_ladder_may_answer_what_no_model_says() -> None:
    made = table([1] * 40, {"small": columns([1] * 40, [0.4] * 40), "large": columns([1] * 40, [0.9] * 40)})
    preset = FallbackSettings(retry=0, peer=False, lighter=False, preset=Preset(label="unknown"))
    ladder = Contender(Cascade(stages=("small", "large"), threshold=0.5), fallback=preset)
    found = experiment(made, {"small": Contender(Use("small")), "ladder": ladder}, draws=100)
    assert found.arm("ladder").metric.mean == 1.0


def page(found: Experiment, made: OutcomesTable, **given: Any) -> str:
    one = contribution(
        "blend", Blend(weights={"small": 0.5, "large": 0.5}), made, segments=[by_meta(made, "group")], draws=100
    )
    return render(found, brought=[one], **given)


def test_the_page_escapes_what_comes_from_outside_and_asks_for_nothing() -> None:
    made = traffic()
    policies = {"<b>直接</b>": Contender(Use("small")), "blend": Contender(Blend(weights={"small": 0.5, "large": 0.5}))}
    found = experiment(made, policies, groups=("group",), draws=200)
    text = page(found, made, title="A & <i>B</i>", command="rheostat experiment")
    assert "<b>直接" not in text
    assert "&lt;b&gt;直接&lt;/b&gt;" in text
    assert "A &amp; &lt;i&gt;B" in text
    assert not re.search(r'(src|href)="(?!data:)', text)
    assert "<script" not in text
    for heading in ("What each policy gives", "How the models are weighed", "Are groups served alike?",
                    "What each model brought", "What was left out", "Where this comes from"):  # fmt: skip
        assert heading in text
    assert "nan" not in re.sub(r'src="data:[^"]*"', "", text)


def run(arguments: list[str], code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["experiment", *arguments])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


@pytest.fixture
def saved(tmp_path: Path) -> str:
    save(traffic(), tmp_path / "outcomes.parquet")
    return str(tmp_path / "outcomes.parquet")


def test_the_verb_compares_and_writes_a_page(saved: str, tmp_path: Path) -> None:
    written = str(tmp_path / "page.html")
    result = run([saved, "--policy", "small=small", "--policy", "two={cascade: {stages: [small, large], threshold: 0.8}}",
                  "--metric", "accuracy", "--metric", "log-loss", "--group", "group", "--report", written])  # fmt: skip
    assert "two beats small on accuracy" in result.stdout
    assert "on test:" in result.stdout
    assert Path(written).read_text(encoding="utf-8").startswith("<!doctype html>")


def test_the_verb_prints_json(saved: str) -> None:
    import msgspec

    found = msgspec.json.decode(run([saved, "--policy", "a=small", "--policy", "b=large", "--json"]).stdout)
    assert [arm["name"] for arm in found["arms"]] == ["a", "b"]
    assert found["arms"][1]["versus"]["said"] == "better"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--policy", "a=small"], "at least two policies"),
        (["--policy", "small", "--policy", "b=large"], "takes NAME=POLICY"),
        (["--policy", "a=small", "--policy", "a=large"], "given twice"),
        (["--policy", "a=small", "--policy", "b=large", "--metric", "f1"], "unknown metric"),
        (["--policy", "a=small", "--policy", "b=large", "--metric", "auc"], "needs the label"),
        (["--policy", "a=small", "--policy", "b=large", "--metric", "reward:meta.group"], "expected a number"),
        (["--policy", "a=small", "--policy", "b=large", "--group", "age"], "no row has meta.age"),
        (["--policy", "a=small", "--policy", "b=large", "--split", "other"], "--split is one of"),
        (["--policy", "a=small", "--policy", "b=giant"], "giant"),
    ],
)
def test_wrong_use_is_explained(saved: str, given: list[str], told: str) -> None:
    assert told in run([saved, *given], 2).output


def test_policies_are_written_in_their_own_letters() -> None:
    made = traffic(60)
    made = replace(made, columns={"小": made.columns["small"]}, model_info={})
    found = experiment(made, {"one": Contender(Use("小")), "two": Contender(Use("小"))}, draws=50)
    assert found.arm("one").form == "小"
