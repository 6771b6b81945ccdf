"""`rheostat train bandit`: from outcomes to a file that serves, and on from records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rheostat.chance import chance
from rheostat.sync import SyncRouter
from rheostat.telemetry import JsonlSink
from rheostat.types import Feedback, RouteRecord, Step
from tests.cli.conftest import Run


def test_from_outcomes_to_a_file_and_on_from_records(run: Run, place: Path) -> None:
    said = run(["train", "bandit", "outcomes.parquet", "--floor", "0.02"])
    assert "share of the traffic" in said.stdout
    assert "policy: {file: bandit.yaml}" in said.stdout
    models = json.loads(run(["train", "bandit", "outcomes.parquet", "--out", "other.yaml", "--json"]).stdout)["shares"]
    arm = next(iter(models))
    sink = JsonlSink(place / "records.jsonl")
    step = Step(0.0, "call", (arm,), "", 0.5)
    sink.write([RouteRecord(id="1", wall=1.0, route="default", status="ok", route_type="bandit", steps=(step,), label="x")])
    sink.write([Feedback(request_id="1", wall=2.0, reward=1.0)])
    sink.close()
    update = ["train", "bandit", "--policy-file", "bandit.yaml", "--from-records", "records.jsonl"]
    assert f"records: 1 of {arm}" in run(update).stdout
    assert "records: nothing new" in run(update).stdout
    grown = run([*update, "--arms", f"{','.join(models)},newcomer", "--out", "grown.yaml"])
    assert "newcomer" in grown.stdout
    assert "replayed at" in run(["replay", "outcomes.parquet", "--policy-file", "bandit.yaml"]).stdout


@pytest.mark.usefixtures("place")
def test_what_is_missing_or_contradicts_the_file_is_said(run: Run) -> None:
    assert "--arms" in run(["train", "bandit"], code=2).stderr
    run(["train", "bandit", "--arms", "a,b"])
    assert "is there already" in run(["train", "bandit", "--arms", "a,b"], code=2).stderr
    run(["train", "bandit", "--arms", "a,b", "--force"])
    wrong = run(["train", "bandit", "--policy-file", "bandit.yaml", "--algorithm", "epsilon"], code=2)
    assert "make a new one" in " ".join(wrong.stderr.replace("│", " ").split())
    assert "needs `features`" in " ".join(
        run(["train", "bandit", "--arms", "a,b", "--algorithm", "linucb"], code=2).stderr.split()
    )
    assert "there is no file" in run(["train", "bandit", "--policy-file", "none.yaml"], code=1).stderr
    unknown = run(["train", "bandit", "--arms", "a,b", "--algorithm", "ucb", "--force"], code=2).stderr
    assert "one of thompson" in " ".join(unknown.replace("│", " ").split())
    for bad in ("nan", "-1"):
        said = run(["train", "bandit", "outcomes.parquet", "--weight", bad, "--force"], code=2).stderr
        assert "above 0" in " ".join(said.replace("│", " ").split())


def test_served_judged_updated_taken_up_and_evaluated(run: Run, place: Path) -> None:
    """The whole loop: the served choices are the records' propensities, and a second policy is judged from them."""
    run(["train", "bandit", "--arms", "fast,large", "--segment", "task", "--floor", "0.2", "--guard", "1"])
    config = (place / "rheostat.yaml").read_text()
    served = "policy: {file: bandit.yaml}"
    (place / "live.yaml").write_text(config.replace("policy: {cascade: {stages: [fast, large], threshold: 0.8}}", served))
    assert served in (place / "live.yaml").read_text()
    with SyncRouter("live.yaml") as router:
        for i in range(300):
            task = "a" if i % 2 else "b"  # ids are given, because chance is drawn from them
            answer = router.predict(f"strings are sequences, {i}", meta={"task": task}, request_id=f"first-{i}")
            model = answer.record.selected_model
            good = chance("good", f"{i}{model}") < (0.9 if model == "large" else 0.5)
            router.feedback(Feedback(request_id=answer.record.id, wall=100.0 + i, reward=float(good)))
            assert answer.record.route_type == "bandit"
            assert answer.record.propensity == pytest.approx(0.5)
    update = ["train", "bandit", "--policy-file", "bandit.yaml", "--from-records", "records.sqlite"]
    said = run(update).stdout
    assert "2 values of task learn on their own" in said
    with SyncRouter("live.yaml") as router:
        later = [router.predict("x", meta={"task": "a"}, request_id=f"later-{i}").record for i in range(20)]
    assert sum(one.selected_model == "large" for one in later) > 10
    assert {round(one.propensity, 3) for one in later} <= {0.8, 0.2}
    judged = run(["ope", "records.sqlite", "--policy", "large", "--by", "task", "--cluster", "request"]).stdout
    assert "better than what was served" in judged
    assert "left out: 20 x no judgement" in judged
