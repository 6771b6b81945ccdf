"""From records and judgements to a log, from both kinds of file, and on to what the command says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rheostat.chance import chance
from rheostat.cli.ope import ope
from rheostat.lab.ope import OpeRefused, evaluate, log_from_records
from rheostat.lab.ope.choices import choices, context_of, drawn_by
from rheostat.policies import parse_policy
from rheostat.telemetry import JsonlSink, SqliteSink
from rheostat.types import Feedback, RouteRecord, Step

SPLIT = parse_policy({"split": {"arms": [{"use": "fast", "share": 3}, {"use": "large", "share": 1}], "key": "request"}})
QUALITY = {("fast", "easy"): 0.9, ("large", "easy"): 0.9, ("fast", "hard"): 0.3, ("large", "hard"): 0.8}


def record(i: int, policy: Any = SPLIT, **changes: Any) -> RouteRecord:
    fields: dict[str, Any] = {"id": f"r{i}", "wall": 1.0 + i, "route": "default", "status": "ok", "label": "yes"}
    kind = "hard" if chance("kind", str(i)) < 0.5 else "easy"
    fields |= {"meta": {"task": kind}, "signals": {"difficulty": float(kind == "hard")}}
    draft = RouteRecord(**fields)
    call = policy.decide(context_of(draft), ())
    step = Step(0.0, "call", call.models, call.reason, call.propensity)
    return RouteRecord(**(fields | {"propensity": call.propensity, "steps": (step,), "cost": 1.0} | changes))


def judgement(one: RouteRecord) -> Feedback:
    model = one.steps[0].models[0]
    good = chance("reward", one.id) < QUALITY[model, str(one.meta["task"])]
    return Feedback(request_id=one.id, wall=one.wall, label="yes" if good else "no")


def written(path: Path, entries: Sequence[Any]) -> Path:
    sink = SqliteSink(path) if path.suffix == ".sqlite" else JsonlSink(path)
    sink.write(entries)
    sink.close()
    return path


def traffic(n: int) -> list[Any]:
    return [entry for one in map(record, range(n)) for entry in (one, judgement(one))]


BY_DIFFICULTY = parse_policy({"binary": {"signal": "difficulty", "threshold": 0.5, "weak": "fast", "strong": "large"}})


@pytest.mark.parametrize("name", ["records.jsonl", "records.sqlite"])
def test_a_deterministic_policy_is_judged_on_the_records_of_a_split(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / name, traffic(2500))
    log = log_from_records(path, BY_DIFFICULTY, by="task")
    assert len(log) == 2500
    assert set(log.actions) == {"fast", "large"}
    found = evaluate(log, draws=300)
    assert found.values["dr"].low < 0.85 < found.values["dr"].high
    assert found.lifts["dr"].better
    assert found.overlap.mean_weight == pytest.approx(1.0, abs=0.1)


def test_records_that_say_nothing_are_left_out_and_counted(tmp_path: Path) -> None:
    entries = traffic(100)
    odd = [
        record(200, forced=True), record(201, steps=()), record(202),
        record(203, steps=(*record(203).steps, Step(0.1, "call", ("fast", "large"), "unsure"))),
        record(204), record(204), record(205),
    ]  # fmt: skip
    judged = [*entries, *odd, *(Feedback(request_id=f"r{i}", reward=1.0) for i in (200, 201, 203, 204))]
    judged.append(Feedback(request_id="r205", reward=float("nan")))
    log = log_from_records(written(tmp_path / "r.jsonl", judged), BY_DIFFICULTY, price=0.1)
    assert len(log) == 100
    assert set(log.reward.tolist()) == {0.9, -0.1}
    assert log.left_out["forced by the caller"] == 1
    assert log.left_out["no model was asked, or the client left"] == 1
    assert log.left_out["decided again after an answer"] == 1
    assert log.left_out["the same request id several times"] == 2
    assert log.left_out["no judgement"] == 2  # the store keeps no NaN


def test_chances_of_a_policy_that_draws_are_found_whole() -> None:
    ctx = context_of(record(1))
    nested = parse_policy(
        {
            "split": {
                "arms": [{"use": "fast", "share": 2}, {"use": BY_DIFFICULTY_NODE, "share": 1, "name": "b"}],
                "key": "user",
                "name": "outer",
            }
        }
    )
    hard = context_of(record(1, signals={"difficulty": 1.0}))
    easy = context_of(record(1, signals={"difficulty": 0.0}))
    assert choices(SPLIT, ctx, drawn_by(SPLIT)) == pytest.approx({"fast": 0.75, "large": 0.25})
    assert choices(nested, hard, drawn_by(nested)) == pytest.approx({"fast": 2 / 3, "large": 1 / 3})
    assert choices(nested, easy, drawn_by(nested)) == pytest.approx({"fast": 1.0})
    sampled = parse_policy({"blend": {"weights": {"fast": 1, "large": 4}, "mode": "sample"}})
    assert choices(sampled, ctx, drawn_by(sampled)) == pytest.approx({"fast": 0.2, "large": 0.8})
    mixed = parse_policy({"blend": {"weights": {"fast": 1, "large": 4}}})
    assert choices(mixed, ctx, drawn_by(mixed)) == {"fast+large": 1.0}


BY_DIFFICULTY_NODE = {"binary": {"signal": "difficulty", "threshold": 0.5, "weak": "fast", "strong": "large"}}


def test_what_records_cannot_answer_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "r.jsonl", traffic(60))
    cascade = parse_policy({"cascade": {"stages": ["fast", "large"], "threshold": 0.9}})
    with pytest.raises(OpeRefused, match="decides again after an answer"):
        log_from_records(path, cascade)
    unknown = parse_policy({"binary": {"signal": "length", "threshold": 5, "weak": "fast", "strong": "large"}})
    with pytest.raises(OpeRefused, match=r"60 x the policy fails on what the record kept \(KeyError: 'length'\)"):
        log_from_records(path, unknown)
    with pytest.raises(OpeRefused, match="no judgement"):
        log_from_records(written(tmp_path / "none.jsonl", [record(1), record(2)]), BY_DIFFICULTY)
    sure = [record(i, policy=parse_policy("fast")) for i in range(50)]
    certain = written(tmp_path / "sure.jsonl", [*sure, *map(judgement, sure)])
    with pytest.raises(OpeRefused, match="every logged choice was certain"):
        evaluate(log_from_records(certain, BY_DIFFICULTY))


def test_the_command_says_value_difference_and_overlap(tmp_path: Path) -> None:
    import typer

    app = typer.Typer()
    app.command()(ope)
    path = str(written(tmp_path / "records.sqlite", traffic(1500)))
    said = CliRunner().invoke(app, [path, "--policy", "large", "--by", "task"])
    assert said.exit_code == 0, said.output
    for words in ("large, judged on 1,500 logged choices", "DR, 95 % interval", "switch-dr", "rows count like"):
        assert words in said.stdout
    data = CliRunner().invoke(app, [path, "--policy", "fast", "--json"])
    assert '"snips"' in data.stdout
    refused = CliRunner().invoke(app, [path, "--policy", "other"])
    assert refused.exit_code == 1
    assert "the log never chose it" in refused.stderr
