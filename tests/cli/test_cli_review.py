"""From an unsure answer to a person's label and back, over both kinds of record files."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from rheostat import open_router
from tests.cli.conftest import Run

MODELS = """
def fast(rows):
    return [("yes", float(row.split()[0])) for row in rows]
"""
CONFIG = """
models: {{fast: {{backend: python, callable: "review_models:fast", labels: ["yes", "no", "unsure"]}}}}
routes: {{default: {{policy: {{review: {{policy: fast, below: 0.6, label: unsure}}}}}}}}
records: {{{kind}: {file}, input: raw}}
"""


@pytest.fixture(params=["records.sqlite", "records.jsonl"])
def records(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    file = str(request.param)
    (tmp_path / "review_models.py").write_text(MODELS)
    (tmp_path / "rheostat.yaml").write_text(CONFIG.format(kind=file.partition(".")[2], file=file))
    monkeypatch.chdir(tmp_path)
    with open_router("rheostat.yaml") as router:
        said = [router.predict(text) for text in ("0.9 sure", "0.3 =1+1 这条评论", "0.5 half")]
        page = router.router.metrics.render().decode()
    assert [one.record.label for one in said] == ["yes", "unsure", "unsure"]
    assert [one.record.guess for one in said] == [None, "yes", "yes"]
    assert 'rheostat_review_total{route="default"} 2' in page
    return file


def rows(path: str) -> list[dict[str, str]]:
    with open(path, encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def test_the_queue_the_sheet_and_the_labels(records: str, run: Run) -> None:
    assert "2 answers wait for a person" in run(["review", records]).stdout
    assert "confidence 0.3000 < 0.6" in run(["review", records]).stdout
    assert "2 answers wait; wrote queue.csv" in run(["review", records, "--out", "queue.csv"]).stdout
    before = Path("queue.csv").read_bytes()
    assert "is there already" in run(["review", records, "--out", "queue.csv"], code=2).stderr
    assert "is there already" in run(["review", records, "--out", records, "--force"], code=2).stderr
    assert Path("queue.csv").read_bytes() == before
    sheet = rows("queue.csv")
    assert [(row["label"], row["guess"], row["text"]) for row in sheet] == [
        ("", "yes", "0.3 =1+1 这条评论"),
        ("", "yes", "0.5 half"),
    ]
    sheet[0]["label"] = "no"
    with open("done.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(sheet[0]))
        writer.writeheader()
        writer.writerows(sheet)
    assert "1 labels taken, 1 rows without a label" in run(["review", records, "--labels", "done.csv"]).stdout
    assert "1 answers wait" in run(["review", records]).stdout
    again = run(["review", records, "--labels", "done.csv"])
    assert "0 labels taken" in again.stdout
    assert "do not wait" in again.stderr
    told = json.loads(run(["explain", sheet[0]["request_id"], "--records", records, "--json"]).stdout)
    assert [(each["label"], each["source"]) for each in told["feedback"]] == [("no", "review")]


def test_a_sheet_that_cannot_be_used_changes_nothing(records: str, run: Run) -> None:
    Path("bad.csv").write_text("id,answer\n1,no\n")
    assert "there is no request_id and no label" in run(["review", records, "--labels", "bad.csv"], code=1).stderr
    Path("twice.csv").write_text("request_id,label\na,no\na,yes\n")
    said = run(["review", records, "--labels", "twice.csv"], code=1).stderr
    assert "line 3: request a is labelled twice, 'no' and 'yes'" in said
    assert "takes one back" in run(["review", records, "--labels", "a", "--out", "b"], code=2).stderr
    assert "2 answers wait" in run(["review", records, "--route", "default"]).stdout
    assert "0 answers wait" in run(["review", records, "--route", "other"]).stdout


def test_replay_counts_what_is_left_to_a_person_apart_and_keeps_a_budget(place: Path, run: Run) -> None:
    cascade = "{cascade: {stages: [fast, large], threshold: 0.9}}"
    written = f"{{review: {{policy: {cascade}, below: 0.9, label: unsure}}}}"
    said = run(["replay", "outcomes.parquet", "--policy", written]).stdout
    assert "left to a person: " in said
    assert "wrong guesses there" in said
    found = json.loads(run(["replay", "outcomes.parquet", "--policy", written, "--json"]).stdout)["figures"]
    assert found["reviewed"] > 0
    assert [each["below"] for each in found["coverage"]][:2] == [0.0, 0.3]
    assert found["coverage"][0]["left_error"] is None
    config = place / "rheostat.yaml"
    budget = "\nbudgets: {large: {share: 0.2, models: [large]}}\n"
    config.write_text(config.read_text().replace("threshold: 0.8", "threshold: spend.large") + budget)
    told = run(["replay", "outcomes.parquet", "--config", "rheostat.yaml"])
    assert "the policy failed" not in told.stderr
    assert "spend.large" in told.stdout
