"""train difficulty: from an outcomes table to a file and the tiers that read it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import Result

from rheostat.cli import train_difficulty
from rheostat.lab.difficulty import examples, net
from rheostat.lab.learned_file import read_card
from rheostat.lab.outcomes_file import save
from rheostat.policies import parse_policy
from tests.lab.difficulty.difficulty_tables import table

Run = Callable[..., Result]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with o.parquet: 300 texts, those that say `maybe` are hard; few settings are tried."""
    rng = np.random.default_rng(0)
    hard = rng.random(300) < 0.4
    says = np.where(hard, "maybe", "please")
    texts = [f"{word} send invoice {i} to the office{', and soon' * (i % 5)}" for i, word in enumerate(says)]
    wrong = np.where(rng.random(300) < 0.85, hard, ~hard)
    save(table(texts, wrong, np.repeat([0, 1, 2], 100)), tmp_path / "o.parquet")
    save(table([*texts[:150], *texts[:150]], wrong, np.repeat([0, 1, 2], 100)), tmp_path / "twice.parquet")
    monkeypatch.setattr(net.choose, "__defaults__", (net.GRID[3:4], None, 0))
    monkeypatch.setattr(train_difficulty, "_TRIED", 40)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_file_and_tiers_come_out(here: Path, run: Run) -> None:
    said = run(["train", "difficulty", "o.parquet", "--tiers", "2"]).stdout
    assert "on 100 rows that nothing was fitted or chosen on, fast errs on" in said
    assert float(re.search(r"AUROC for an error: (\d\.\d+)", said)[1]) > 0.75  # type: ignore[index]
    assert read_card(here / "difficulty.onnx").meaning == "difficulty"
    (written,) = re.findall(r"^  tiers: .*$", said, re.MULTILINE)
    policy = parse_policy(yaml.safe_load(written))
    assert policy.signals() == ("difficulty",)  # type: ignore[attr-defined]
    run(["train", "difficulty", "o.parquet"], code=2)
    by_share = run(["train", "difficulty", "o.parquet", "--shares", ".6,.4", "--force"]).stdout
    assert "`quantiles: traffic` in the signal, and cuts: [0.6]" in by_share


def test_without_labels_clusters_stand_in(here: Path, run: Run) -> None:
    said = run(["train", "difficulty", "o.parquet", "--no-labels", "--shares", ".5,.5"]).stdout
    assert "AUROC for an error" in said
    assert read_card(here / "difficulty.onnx").notes == ("labels from clusters",)
    assert read_card(here / "difficulty.onnx").features == examples.TEXT


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["twice.parquet"], "--drop-repeats"),
        (["o.parquet", "--on", "test"], "three different splits"),
        (["o.parquet", "--small", "tiny"], "no model 'tiny'"),
        (["o.parquet", "--small", "large"], "always right on the rows to fit on"),
        (["o.parquet", "--shares", "half"], "--shares takes numbers"),
        (["o.parquet", "--shares", ".5,.4"], "sum to 1"),
    ],
)
@pytest.mark.usefixtures("here")
def test_what_is_wrong_is_said(options: list[str], told: str, run: Run) -> None:
    assert told in " ".join(re.sub(r"[│╭╮╰╯─]", " ", run(["train", "difficulty", *options], code=2).stderr).split())
