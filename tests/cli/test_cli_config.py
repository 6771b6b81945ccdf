"""init, check, version and help."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import rheostat
from rheostat.cli.app import PANELS
from rheostat.config import load_config
from tests.cli.conftest import Run
from tests.jobs.real_pool import PAGES, digit_pool

VERBS = [verb.__name__ for _, verbs in PANELS for verb in verbs]


def test_version(run: Run) -> None:
    assert run(["version"]).stdout == f"{rheostat.__version__}\n"


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_and_those_with_arguments_an_example(run: Run, verb: str) -> None:
    told = run([verb, "--help"]).stdout
    assert f"rheostat {verb}" in " ".join(told.replace("│", " ").split()) or f"Usage: root {verb}" in told
    if verb not in ("demo", "version"):
        assert "Example:" in told


def test_help_imports_no_heavy_library() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from rheostat.cli.app import app\n"
        "CliRunner().invoke(app, ['--help'])\n"
        "print([name for name in ('numpy', 'pyarrow', 'sklearn', 'onnxruntime', 'aiohttp', 'yaml', 'uvicorn') "
        "if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_the_command_and_the_module_are_the_same(place: Path) -> None:
    command = [sys.executable, "-m", "rheostat", "check", "rheostat.yaml"]
    found = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    assert found.returncode == 0
    assert "fast answers when its confidence is at least 0.8" in found.stdout


def test_init_writes_a_config_that_check_accepts_and_that_loads(place: Path, run: Run) -> None:
    models = ["--model", "fast=fast.onnx", "--model", "large=large.joblib"]
    said = run(["init", *models, "--csv", "data.csv", "--out", "new.yaml"])
    assert "large.joblib: a pickle runs code" in said.stderr
    run(["check", "new.yaml"])
    refused = run(["check", "new.yaml", "--load"], code=2)
    assert "models.large.trusted" in refused.stderr
    assert "is there already" in " ".join(
        run(["init", *models, "--out", "new.yaml"], code=2).stderr.replace("│", " ").split()
    )
    run(["init", *models, "--csv", "data.csv", "--out", "new.yaml", "--trust", "--force"])
    shown = run(["check", "new.yaml", "--load"]).stdout
    assert "a row takes" in shown
    loaded = load_config("new.yaml")
    assert loaded.config.labels == tuple(sorted(PAGES))
    assert [model.cost for model in loaded.config.models.values()] == [1.0, 10.0]
    text = (place / "new.yaml").read_text()
    assert text.count("#") > 8


def test_init_writes_paths_from_the_config_s_folder(place: Path, run: Run) -> None:
    (place / "deep").mkdir()
    run(["init", "--model", "fast.onnx", "--csv", "data.csv", "--out", "deep/rheostat.yaml"])
    assert load_config("deep/rheostat.yaml").config.models["fast"].path == "../fast.onnx"  # type: ignore[attr-defined]
    run(["check", "deep/rheostat.yaml", "--load"])


def test_init_for_rows_of_features(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    digit_pool(tmp_path)
    monkeypatch.chdir(tmp_path)
    models = ["--model", "tree=tree.onnx", "--model", "linear=linear.joblib", "--trust"]
    run(["init", *models, "--csv", "digits.csv", "--label-column", "digit"])
    run(["check", "--load"])
    run(["evaluate", "rheostat.yaml", "digits.csv", "--label-column", "digit"])
    tuned = json.loads(run(["tune", "outcomes.parquet", "--goal", "max-share=60%", "--json"]).stdout)
    assert tuned["reported"]["quality"][0] > tuned["reported"]["alone"][0]["quality"][0]


def test_init_knows_functions_and_endpoints(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    targets = ["mine=my_code:classify", "llm=http://localhost:8000/v1#qwen3", "other=https://models.example.org/classify"]
    run(["init", *[part for target in targets for part in ("--model", target)]])
    models = load_config("rheostat.yaml").config.models
    kinds = {name: model.__struct_config__.tag for name, model in models.items()}
    assert kinds == {"mine": "python", "llm": "openai", "other": "http"}
    assert models["llm"].model == "qwen3"  # type: ignore[attr-defined]
    run(["check"])


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ([], 2, "name your models"),
        (["--model", "a=none.onnx"], 1, "there is no file none.onnx"),
        (["--model", "a=notes.txt"], 1, "expected a file ending in"),
        (["--model", "a=m:f", "--model", "a=m:g"], 1, "two models are named 'a'"),
        (["--model", "a=m:f", "--csv", "none.csv"], 1, "No such file"),
    ],
)
def test_init_says_what_is_wrong(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    said = run(["init", *arguments], code=code).stderr
    assert told in " ".join(said.replace("│", " ").split())
    assert not (tmp_path / "rheostat.yaml").exists()


def test_check_tells_every_rung_and_what_is_given_again(place: Path, run: Run) -> None:
    (place / "whole.yaml").write_text(
        "models: {a: {backend: template, label: x}}\nresults: {path: results.sqlite}\nroutes:\n  default:\n"
        "    policy: a\n    cache: {ttl: 90s}\n    fallback: {cached: true, later: true, preset: {label: x}}\n"
    )
    said = run(["check", "whole.yaml"]).stdout
    assert "L4 the last answer to the same question, L5 the preset 'x'; then a model's own answer follows later" in said
    assert "an answer is given again for 90 s to whoever asks the same" in said


def test_check_lists_every_mistake_with_its_line(place: Path, run: Run) -> None:
    text = (place / "rheostat.yaml").read_text()
    (place / "bad.yaml").write_text(text.replace("backend: onnx", "backend: onx").replace("threshold", "treshold"))
    said = run(["check", "bad.yaml"], code=2).stderr
    assert "line 2: models.fast.backend" in said
    assert "did you mean `onnx`" in said
    assert "line 6: routes.default.policy.cascade.treshold" in said
    found = json.loads(run(["check", "bad.yaml", "--json"], code=2).stdout)
    assert found["ok"] is False
    assert {problem["line"] for problem in found["problems"]} == {2, 6}
    assert "No such file" in run(["check", "none.yaml"], code=2).stderr


def test_check_tells_warnings_and_policies(place: Path, run: Run) -> None:
    text = (place / "rheostat.yaml").read_text()
    policy = (
        "{chain: [{rules: [{name: long, when: 'text.size() > 500', use: large}]},"
        " {binary: {signal: length, threshold: 200, weak: fast, strong: {blend: {weights: {fast: 1, large: 3}}}}}]}"
    )
    cascade = "{cascade: {stages: [fast, large], threshold: 0.8}}"
    (place / "other.yaml").write_text(text.replace(cascade, policy).replace("records: {sqlite: records.sqlite}\n", ""))
    said = run(["check", "other.yaml"])
    assert "warning: line 1: records" in said.stderr
    assert "1. long: when text.size() > 500 -> large" in said.stdout
    assert "binary: when length is at least 200 ->" in said.stdout
    assert "answers are mixed by weight: fast 25.0%, large 75.0%" in said.stdout
    assert "reads the signals length" in said.stdout


def test_check_prints_a_schema_that_accepts_a_config(place: Path, run: Run) -> None:
    import jsonschema
    import yaml

    schema = json.loads(run(["check", "--schema"]).stdout)
    jsonschema.validate(yaml.safe_load((place / "rheostat.yaml").read_text()), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"models": {}, "rutes": {}}, schema)


def test_check_names_the_models_that_nothing_but_the_ladder_would_ask(place: Path, run: Run) -> None:
    models = "models: {d: &m {backend: template, label: x}, c: *m, b: {<<: *m, peers: [c]}, a: {<<: *m, lighter: b}}"
    for more, stands_in in (("", True), (", models: [a, b, c]", False), (", fallback: {lighter: false}", False)):
        (place / "open.yaml").write_text(f"{models}\nroutes: {{default: {{policy: a{more}}}}}\n")
        told = run(["check", "open.yaml"])
        assert ("any other model may stand in at L3 (d)" in told.stdout) is stands_in
        assert "models.d: no route names this model" in told.stderr
        assert ("it may answer at L3" in told.stderr) is stands_in
