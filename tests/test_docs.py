"""The pages that are not run as a whole: their policies are policies, their tables are the code's."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import yaml

from rheostat.config import load_config
from rheostat.errors import FAILURES, ConfigError
from rheostat.gateway.handle import ServerHandle
from rheostat.policies import KINDS, Balance, live_of, parse_policy
from rheostat.policies.rules import LOAD
from rheostat.pool import ModelSettings
from rheostat.resilience.residency import MemorySettings
from rheostat.testing import step

DOCS = Path(__file__).parents[1] / "docs"
GUIDE = (DOCS / "guides" / "choosing-a-policy.md").read_text()
POLICIES = re.findall(r"```yaml policy\n(.*?)```", GUIDE, re.DOTALL)


@pytest.mark.parametrize("block", POLICIES)
def test_every_policy_in_the_guide_is_one(block: str) -> None:
    assert callable(parse_policy(yaml.safe_load(block)).decide)


def test_the_guide_shows_every_kind() -> None:
    shown = "\n".join(POLICIES)
    assert {kind for kind in KINDS if f"{kind}:" in shown} == set(KINDS)


def test_the_guides_own_policy_keeps_the_laws_and_serves(tmp_path: Path) -> None:
    for name, body in re.findall(r"```python file=(\S+)\n(.*?)```", GUIDE, re.DOTALL):
        (tmp_path / name).write_text(body)
    (tmp_path / "models.py").write_text("def sure(rows):\n    return [('yes', 0.6) for _ in rows]\n")
    (written,) = re.findall(r"`policy: (\{my_policies.*\})`", GUIDE)
    config = "models: {fast: &m {backend: python, callable: 'models:sure', labels: ['yes', 'no']}, large: *m}\n"
    (tmp_path / "rheostat.yaml").write_text(f"{config}routes: {{default: {{policy: {written}}}}}\n")
    said = [
        subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        for command in (["try_policy.py"], ["-m", "rheostat", "predict", "rheostat.yaml", "hello"])
    ]
    assert said[0].startswith("Answer(weights={'fast': 1.0}, reason='the large model failed'")
    assert "because both say the same" in said[1]


def test_a_misspelt_model_of_the_guides_policy_is_seen_at_load(tmp_path: Path) -> None:
    (body,) = re.findall(r"```python file=my_policies.py\n(.*?)```", GUIDE, re.DOTALL)
    (tmp_path / "guide_policies.py").write_text(body)
    (tmp_path / "rheostat.yaml").write_text(
        "models: {fast: {backend: rules, rules: []}}\n"
        "routes: {default: {policy: {guide_policies.SecondOpinion: {small: fast, large: lrage}}}}\n"
    )
    with pytest.raises(ConfigError, match="lrage"):
        load_config(str(tmp_path / "rheostat.yaml"))


def test_the_table_of_failures_is_the_codes() -> None:
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\| (\w+) \| (\w+) \| (\w+) \| (\d+) \|$",
                      (DOCS / "reference" / "failures.md").read_text(), re.MULTILINE)  # fmt: skip
    told = {kind: (*(word == "yes" for word in words), int(status)) for kind, *words, status in rows}
    assert told == {kind: (rule.retryable, rule.counts, rule.final, rule.status) for kind, rule in FAILURES.items()}


def test_the_guide_of_load_shows_configs_ways_and_metrics_that_are_there(tmp_path: Path) -> None:
    guide = (DOCS / "guides" / "load.md").read_text()
    blocks = re.findall(r"```yaml load\n(.*?)```", guide, re.DOTALL)
    assert len(blocks) == guide.count("```yaml") == 3
    for block in blocks:
        (tmp_path / "rheostat.yaml").write_text(block)
        loaded = load_config(str(tmp_path / "rheostat.yaml"))
        assert live_of(loaded.policies["default"])
    assert set(re.findall(r"^\| `(\w+)` \|", guide, re.MULTILINE)) == set(get_args(get_type_hints(Balance)["choose"]))
    counted = (DOCS.parent / "src" / "rheostat" / "telemetry" / "metrics.py").read_text()
    assert all(f'"{name}"' in counted for name in re.findall(r"`(rheostat_\w+)`", guide))
    fields = re.search(r"`pool.NAME` has (.*?) \(", guide, re.DOTALL)
    assert fields is not None
    assert set(re.findall(r"`(\w+)`", fields[1])) == LOAD


def test_links_between_pages_lead_somewhere() -> None:
    for page in [*DOCS.rglob("*.md"), *DOCS.parent.glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_table_of_cases_names_tests_that_exist() -> None:
    rows = re.findall(r"^\| (O-\w+-\d+) \| (.+) \|$", (DOCS / "reference" / "cases.md").read_text(), re.MULTILINE)
    wanted = {f"O-RES-{number:02}" for number in range(1, 23)} | {f"O-RTE-{number:02}" for number in range(1, 16)}
    wanted |= {f"O-BAT-{number:02}" for number in range(1, 7)}
    wanted |= {f"O-CAC-{number:02}" for number in range(1, 9)}
    wanted |= {"O-ROL-04", "O-CFG-06", "O-MLT-05", "O-MLT-07", "O-MLT-08"}
    assert {case for case, _ in rows} == wanted
    own = (DOCS.parent / "tests" / "cases" / "own.yaml").read_text()
    for case, by in rows:
        tests = re.findall(r"`(tests/\S+?)::(\w+)`", by)
        named = re.findall(r"`(R-\w+-\d+)`", by)
        assert tests or named or by == "runner", case
        for file, name in tests:
            assert f"def {name}(" in (DOCS.parent / file).read_text(), case
        for name in named:
            assert f"id: {name}\n" in own, case


def test_the_guide_of_testing_runs(tmp_path: Path) -> None:
    guide = (DOCS / "guides" / "testing-your-setup.md").read_text()
    files = dict(re.findall(r"```\w+ file=(\S+)\n(.*?)```", guide, re.DOTALL))
    for name, body in files.items():
        (tmp_path / name).write_text(body)
    for command in (
        ["pytest", "-q", "-p", "no:cacheprovider", "."],
        ["rheostat.testing.cases", "cases.yaml", "--slow", "2"],
    ):
        ran = subprocess.run([sys.executable, "-m", *command], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
    assert len(files) == 6
    told = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", guide, re.MULTILINE))))
    assert told == {kind.__name__ for kind in get_args(step.AnyStep)}


def test_the_guide_of_models_in_memory_runs(tmp_path: Path) -> None:
    guide = (DOCS / "guides" / "models-in-memory.md").read_text()
    for name, body in re.findall(r"```\w+ file=(\S+)\n(.*?)```", guide, re.DOTALL):
        (tmp_path / name.replace("my_models", "memory_models")).write_text(body.replace("my_models", "memory_models"))
    path = tmp_path / "rheostat.yaml"
    path.write_text(path.read_text().replace("port: 9090", "port: 0") + "server: {port: 0}\n")
    models = load_config(str(path)).config.models
    assert [models[name].preload for name in ("french", "german")] == [False, True]
    (table,) = re.findall(r"\| setting \|.*?\n\n", guide, re.DOTALL)
    known = {*ModelSettings.__struct_fields__, *(f"memory.{each}" for each in MemorySettings.__struct_fields__)}
    assert set(re.findall(r"^\| `([\w.]+)", table, re.MULTILINE)) < known
    (shown,) = re.findall(r"```\n(model .*?)```", guide, re.DOTALL)
    with ServerHandle(str(path)) as handle:
        for verb in re.findall(r"^rheostat models.*$", guide, re.MULTILINE):
            command = [*verb.split()[1:], "--config", str(path), "--admin", str(handle.admin_url)]
            ran = subprocess.run(
                [sys.executable, "-m", "rheostat", *command], capture_output=True, text=True, check=False, cwd=tmp_path
            )
            assert ran.returncode == 0, ran.stdout + ran.stderr
            if verb == "rheostat models":
                words = [[line.split()[index] for index in (0, 1, 2)] for line in ran.stdout.splitlines()]
                assert words == [[line.split()[index] for index in (0, 1, 2)] for line in shown.splitlines()]
