"""evaluate, tune, curve, report and replay."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from rheostat.config import load_config
from rheostat.config.policy_file import version_of
from rheostat.lab.outcomes_file import load
from tests.cli.conftest import Run

OWN = """
from msgspec import Struct
from rheostat import settle

class LongGoesLarge(Struct, frozen=True):
    small: str
    large: str
    limit: int = 80
    def models(self):
        return (self.small, self.large)
    def decide(self, ctx, history):
        model = self.large if len(ctx.request.text) > self.limit else self.small
        return settle(model, history, f"{len(ctx.request.text)} characters", "long-goes-large")
"""


def flat(text: str) -> str:
    return " ".join(text.replace("│", " ").split())


@pytest.mark.usefixtures("place")
def test_evaluate_says_how_it_split_and_is_not_done_twice(run: Run) -> None:
    said = run(["evaluate", "rheostat.yaml", "data.csv"])
    assert "split automatically, 70/10/20 by the text itself (seed 0)" in said.stderr
    assert "is complete already" in said.stdout
    assert "rheostat tune outcomes.parquet" in said.stdout


def test_bad_lines_are_listed_and_the_exit_code_says_partial(place: Path, run: Run) -> None:
    with (place / "data.csv").open("ab") as file:
        file.write(b"no label,\n\nthree,fields,here\ncaf\xe9,strings\n")
    said = run(["evaluate", "rheostat.yaml", "data.csv", "--out", "new.parquet", "--limit", "0"], code=3)
    lines = len((place / "data.csv").read_bytes().splitlines())
    listed = [json.loads(line) for line in (place / "new.parquet.bad.jsonl").read_text().splitlines()]
    assert [bad["line"] for bad in listed] == [lines - 3, lines - 1, lines]
    assert "`label` is missing" in said.stderr
    assert "1 blank lines skipped" in said.stderr
    assert "3 bad lines are listed in new.parquet.bad.jsonl" in said.stderr
    found = json.loads(run(["evaluate", "rheostat.yaml", "data.csv", "--out", "new.parquet", "--json"], code=3).stdout)
    assert found["cached"] is True
    assert found["rows"] == len(load("new.parquet"))
    assert len(found["bad_lines"]) == 3


def test_evaluate_stops_at_a_bad_line_when_told_to(place: Path, run: Run) -> None:
    (place / "bad.csv").write_text("text,label\nfine,strings\nno label,\n", encoding="utf-8")
    said = run(["evaluate", "rheostat.yaml", "bad.csv", "--out", "new.parquet", "--stop-on-bad"], code=1)
    assert "bad.csv line 3: `label` is missing (stopped there, no model was asked)" in said.stderr
    assert not (place / "new.parquet").exists()


def test_evaluate_takes_splits_by_file_and_some_models(place: Path, run: Run) -> None:
    (place / "a.jsonl").write_text('{"text": "strings are text", "label": "strings"}\n', encoding="utf-8")
    (place / "b.jsonl").write_text('{"text": "breakpoints stop", "label": "debugging"}\n', encoding="utf-8")
    command = ["evaluate", "rheostat.yaml", "--split", "dev=a.jsonl", "--split", "test=b.jsonl", "--models", "fast"]
    run([*command, "--out", "new.parquet", "--batch", "1"])
    table = load("new.parquet")
    assert table.models == ("fast",)
    assert [len(table.select(split=split)) for split in ("train", "dev", "test")] == [0, 1, 1]


@pytest.mark.usefixtures("place")
def test_evaluate_refuses_what_it_cannot_do(run: Run) -> None:
    assert "name a file of labelled rows" in run(["evaluate", "rheostat.yaml"], code=2).stderr
    assert "SPLIT=FILE" in run(["evaluate", "rheostat.yaml", "--split", "x"], code=2).stderr
    assert "did you mean 'text'" in run(["evaluate", "rheostat.yaml", "data.csv", "--text-column", "txt"], code=1).stderr
    said = run(["evaluate", "rheostat.yaml", "data.csv", "--seed", "1"], code=1).stderr
    assert "use --force to write over it" in said
    run(["evaluate", "rheostat.yaml", "data.csv", "--seed", "1", "--force", "--limit", "20"])
    assert len(load("outcomes.parquet")) == 20


def test_tune_writes_a_policy_that_the_config_takes_and_replay_confirms(place: Path, run: Run) -> None:
    said = run(["tune", "outcomes.parquet", "--goal", "max-share=0.5", "--out", "tuned.yaml"])
    assert "policy: {file: tuned.yaml}" in said.stdout
    assert "verdict:" in said.stdout
    assert "--force writes over it" in flat(run(["tune", "outcomes.parquet"], code=2).stderr)
    config = (place / "rheostat.yaml").read_text()
    cascade = "{cascade: {stages: [fast, large], threshold: 0.8}}"
    (place / "rheostat.yaml").write_text(config.replace(cascade, "{file: tuned.yaml}"))
    threshold = load_config("rheostat.yaml").policies["default"].threshold  # type: ignore[attr-defined]
    assert f"{threshold:.6g}" in run(["check"]).stdout
    by_config = json.loads(run(["replay", "outcomes.parquet", "--config", "rheostat.yaml", "--json"]).stdout)
    by_file = json.loads(run(["replay", "outcomes.parquet", "--policy-file", "tuned.yaml", "--json"]).stdout)
    assert by_config["figures"]["quality"] == by_file["figures"]["quality"]
    again = json.loads(run(["tune", "outcomes.parquet", "--goal", "max-share=0.5", "--force", "--json"]).stdout)
    assert again["reported"]["quality"] == by_file["figures"]["quality"]
    assert again["policy"]["cascade"]["threshold"] == threshold


def test_a_policy_file_changed_by_hand_is_noticed(place: Path, run: Run) -> None:
    run(["tune", "outcomes.parquet", "--goal", "max-share=0.5", "--out", "tuned.yaml"])
    text = (place / "tuned.yaml").read_text()
    (place / "tuned.yaml").write_text(text.replace("threshold: 0.", "threshold: 0.0"))
    assert "tuned.yaml" in run(["replay", "outcomes.parquet", "--policy-file", "tuned.yaml"], code=2).stderr


def test_tune_says_what_can_be_reached(place: Path, run: Run) -> None:
    said = run(["tune", "outcomes.parquet", "--goal", "min-quality=0.999"], code=1).stderr
    assert "the best accuracy is" in said
    assert not (place / "tuned.yaml").exists()
    assert "NAME=VALUE" in flat(run(["tune", "outcomes.parquet", "--goal", "quality"], code=2).stderr)
    assert "must lie in [0, 1]" in flat(run(["tune", "outcomes.parquet", "--goal", "max-share=20"], code=2).stderr)
    assert "no model 'larg'" in flat(run(["tune", "outcomes.parquet", "--stages", "fast,larg"], code=2).stderr)
    assert "expected a duration" in flat(run(["tune", "outcomes.parquet", "--goal", "max-latency=soon"], code=2).stderr)
    assert "does not exist" in run(["tune", "none.parquet"], code=1).stderr


@pytest.mark.usefixtures("place")
def test_curve_goes_from_all_large_to_all_small(run: Run) -> None:
    found = json.loads(run(["curve", "outcomes.parquet", "--split", "test", "--points", "0", "--json"]).stdout)
    shares = [point["share"] for point in found["points"]]
    assert shares[0] == 1.0
    assert shares[-1] == 0.0
    assert shares == sorted(shares, reverse=True)
    assert "all go on" in run(["curve", "outcomes.parquet"]).stdout


def test_report_writes_one_page(place: Path, run: Run) -> None:
    run(["tune", "outcomes.parquet", "--goal", "max-share=0.5", "--out", "tuned.yaml"])
    said = run(
        ["report", "outcomes.parquet", "--policy-file", "tuned.yaml", "--out", "report.html", "--title", "Help pages"]
    )
    assert "wrote report.html" in said.stdout
    page = (place / "report.html").read_text()
    assert "Help pages" in page
    assert "tuned.yaml" in page


def test_a_policy_of_one_s_own_is_replayed_and_served_alike(place: Path, run: Run) -> None:
    (place / "my_policies.py").write_text(OWN, encoding="utf-8")
    cascade = "{cascade: {stages: [fast, large], threshold: 0.8}}"
    text = (place / "rheostat.yaml").read_text()
    own = "{my_policies.LongGoesLarge: {small: fast, large: large}}"
    (place / "own.yaml").write_text(text.replace(cascade, own))
    assert "LongGoesLarge(small='fast', large='large', limit=80)" in run(["check", "own.yaml"]).stdout
    found = json.loads(run(["replay", "outcomes.parquet", "--config", "own.yaml", "--split", "all", "--json"]).stdout)
    table = load("outcomes.parquet")
    long = sum(len(table.request(row).text) > 80 for row in range(len(table)))
    assert found["figures"]["share"][0] == long / len(table)
    written = run(["replay", "outcomes.parquet", "--policy", own, "--split", "all", "--json"]).stdout
    assert json.loads(written)["figures"]["share"] == found["figures"]["share"]
    for text, model in (("short", "fast"), ("long " * 30, "large")):
        record = json.loads(run(["predict", "own.yaml", text, "--json"]).stdout)
        assert record["selected_model"] == model
        assert record["route_type"] == "long-goes-large"


@pytest.mark.usefixtures("place")
def test_replay_wants_one_policy(run: Run) -> None:
    assert "exactly one of" in flat(run(["replay", "outcomes.parquet"], code=2).stderr)
    assert "unknown policy" in run(["replay", "outcomes.parquet", "--policy", "{cascad: {}}"], code=2).stderr
    command = ["replay", "outcomes.parquet", "--config", "rheostat.yaml", "--route", "x"]
    assert "has no route 'x'" in run(command, code=1).stderr
    assert "no model 'huge'" in flat(run(["replay", "outcomes.parquet", "--policy", "huge"], code=2).stderr)


def test_replay_says_when_the_policy_itself_failed(place: Path, run: Run) -> None:
    (place / "crash_policies.py").write_text(
        "from msgspec import Struct\n"
        "class Crash(Struct, frozen=True):\n"
        "    small: str\n"
        "    def decide(self, ctx, history):\n        return self.nothing\n"
    )
    done = run(["replay", "outcomes.parquet", "--policy", "{crash_policies.Crash: {small: fast}}"], 1)
    assert "the policy failed on" in flat(done.output)
    assert "AttributeError" in done.output


LOADED = {
    "{balance: [fast, large]}": "in_flight, queued, latency_s, error_rate, ramp",
    "{chain: [{rules: [{when: pool.large.queued > 3, use: fast}]}, large]}": "pool.large.queued",
}


@pytest.mark.parametrize("policy", LOADED)
def test_whoever_replays_a_policy_is_told_that_a_table_has_no_load(place: Path, run: Run, policy: str) -> None:
    told = f"it reads live load ({LOADED[policy]})"
    text = (place / "rheostat.yaml").read_text()
    cascade = "{cascade: {stages: [fast, large], threshold: 0.8}}"
    (place / "loaded.yaml").write_text(text.replace(cascade, policy))
    assert told in flat(run(["check", "loaded.yaml"]).stdout)
    checked = json.loads(run(["check", "loaded.yaml", "--json"]).stdout)
    assert ", ".join(checked["routes"]["default"]["reads_load"]) == LOADED[policy]
    replayed = run(["replay", "outcomes.parquet", "--config", "loaded.yaml"])
    assert f"warning: route default of loaded.yaml: {told}" in flat(replayed.stderr)
    arms = ["--policy", "one=fast", "--policy", f"two={policy}"]
    compared = flat(run(["experiment", "outcomes.parquet", *arms, "--report", "page.html"]).stdout)
    assert f"! two: {told}" in compared
    assert "one: it reads" not in compared
    assert told in (place / "page.html").read_text()
    assert told in flat(run(["retune", "loaded.yaml", "--before", "outcomes.parquet", "--after", "outcomes.parquet"]).stderr)


def test_a_report_on_a_policy_file_tells_it_too(place: Path, run: Run) -> None:
    run(["tune", "outcomes.parquet", "--goal", "max-share=0.5", "--out", "tuned.yaml"])
    content = yaml.safe_load((place / "tuned.yaml").read_text()) | {"policy": {"balance": ["fast", "large"]}}
    (place / "loaded.yaml").write_text(yaml.safe_dump(content | {"version": version_of(content)}))
    said = run(["report", "outcomes.parquet", "--policy-file", "loaded.yaml", "--out", "report.html"])
    assert "warning: loaded.yaml: it reads live load (in_flight" in flat(said.stderr)
    assert "it reads live load (in_flight" in (place / "report.html").read_text()


@pytest.mark.usefixtures("place")
def test_nobody_else_is_told(run: Run) -> None:
    for command in (["check"], ["replay", "outcomes.parquet", "--config", "rheostat.yaml"]):
        assert "live load" not in run(command).output
