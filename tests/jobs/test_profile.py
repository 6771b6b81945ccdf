"""Profiles: measured, written, named in a config, and made from records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rheostat.cli.app import app
from rheostat.errors import ConfigError
from rheostat.pool.profile import Profile, load_profile, save_profile, spread_of
from rheostat.sync import open_router
from rheostat.types import Feedback

MODULE = """
def fast(rows):
    return [("pos" if "good" in row else "neg", 0.8) for row in rows]

def broken(rows):
    raise ValueError("planted") if rows != ["probe"] else None
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "profiled_models.py").write_text(MODULE)
    config = '{models: {fast: {backend: python, callable: "profiled_models:fast", probe: [good, bad]}}, '
    (tmp_path / "r.yaml").write_text(config + "routes: {default: {policy: fast}}, records: {jsonl: records.jsonl}}")
    rows = [f"row number {i} is {'good' if i % 2 else 'bad'},{'pos' if i % 4 else 'neg'}" for i in range(80)]
    (tmp_path / "d.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str) -> str:
    result = CliRunner().invoke(app, ["profile", *words])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_model_is_measured_alone_under_load_and_against_the_labels(place: Path) -> None:
    found = json.loads(run("r.yaml", "d.csv", "--split", "all", "--most", "4", "--json"))
    (profile,) = found
    assert [load["size"] for load in profile["loads"]] == [1, 2, 4]
    assert profile["alone"]["count"] == 80
    assert profile["alone"]["p50_s"] <= profile["alone"]["p95_s"] <= profile["alone"]["p99_s"]
    quality = profile["quality"]
    assert quality["accuracy"] == 0.75  # every fourth row is neg, the model says so of every second
    assert quality["low"] < 0.75 < quality["high"]
    assert load_profile(place / "profiles" / "fast.json", "fast", "1").quality is not None


def test_without_rows_the_probe_is_asked_and_no_quality_is_claimed(place: Path) -> None:
    run("r.yaml", "--most", "1")
    profile = load_profile(place / "profiles" / "fast.json", "fast", "1")
    assert (profile.alone.count, profile.quality) == (2, None)


def test_decisions_know_what_was_measured(place: Path) -> None:
    run("r.yaml", "d.csv", "--split", "all", "--most", "1")
    text = (place / "r.yaml").read_text().replace("probe:", "profile: profiles/fast.json, probe:")
    rule = 'policy: {rules: [{when: "pool.fast.quality > 0.7", use: fast}]}'
    (place / "r.yaml").write_text(text.replace("policy: fast", rule))
    with open_router("r.yaml") as router:
        assert router.predict("good").record.label == "pos"


@pytest.mark.parametrize(("model", "version"), [("other", "1"), ("fast", "2")])
def test_the_profile_of_another_model_or_version_is_refused(place: Path, model: str, version: str) -> None:
    run("r.yaml", "--most", "1")
    with pytest.raises(ConfigError, match="is of fast version 1, this is"):
        load_profile(place / "profiles" / "fast.json", model, version)


def test_what_is_no_profile_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text('{"model": "fast"}')
    with pytest.raises(ConfigError, match="is no profile"):
        load_profile(tmp_path / "p.json", "fast", "1")


def test_live_traffic_makes_a_profile(place: Path) -> None:
    with open_router("r.yaml") as router:
        ids = [router.predict(text).record.id for text in ("good", "bad", "good")]
        for name in ids:
            router.feedback(Feedback(request_id=name, wall=0.0, label="pos"))
    run("r.yaml", "--records", "records.jsonl")
    profile = load_profile(place / "profiles" / "fast.json", "fast", "1")
    assert (profile.source, profile.alone.count) == ("records", 3)
    assert profile.quality is not None
    assert (profile.quality.rows, profile.quality.chosen) == (3, True)
    assert profile.quality.accuracy == pytest.approx(2 / 3)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    spread = spread_of([0.1])
    profile = Profile(
        model="m", version="1", made="", machine="", source="measured", unit="rows in a call", cost=1.0, alone=spread
    )
    save_profile(profile, tmp_path / "m.json")
    (tmp_path / "d").mkdir()
    with pytest.raises(OSError):
        save_profile(profile, tmp_path / "d" / ".." / "d")
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["m.json"]


def test_percentiles_are_those_of_the_nearest_rank() -> None:
    spread = spread_of([float(i) for i in range(101)])
    assert (spread.p50_s, spread.p95_s, spread.p99_s, spread.count) == (50.0, 95.0, 99.0, 101)
