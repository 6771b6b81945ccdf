"""Evaluation over real files and models: complete, resumable, never in silence."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rheostat.config import load_config
from rheostat.errors import ConfigError
from rheostat.jobs import DataError, Evaluation, EvaluationStopped, LabelledSet, Part, Work, evaluate
from rheostat.lab.outcomes_file import load
from rheostat.lab.outcomes_writer import ResumeError
from tests.jobs.real_pool import config, text_pool

COUNTING = '''
import os, time
LOG = os.environ.get("CALLS", "calls.txt")
def slow(row):
    with open(LOG, "a") as file:
        file.write(str(row) + "\\n")
    time.sleep(float(os.environ.get("PAUSE", "0")))
    if "boom" in row:
        raise ValueError("no booms")
    return {"label": "long" if len(row) > 8 else "short", "confidence": 0.9}
class Flaky:
    """A remote model that is away as long as the file `down` is there."""
    async def __call__(self, rows):
        if os.path.exists(os.environ.get("DOWN", "down")):
            raise OSError("connection refused")
        return [{"label": "long", "confidence": 0.5} for _ in rows]
'''


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pool")
    text_pool(folder)
    config(folder)
    return folder


def run(place: Path, data: Path, out: Path, *, models: tuple[str, ...] = (), **work: Any) -> Evaluation:
    rows = LabelledSet([Part(data)])
    return asyncio.run(evaluate(load_config(str(place)), rows, out, models=models, work=Work(**work)))


def own_config(folder: Path, body: str) -> Path:
    (folder / "own_models.py").write_text(COUNTING, encoding="utf-8")
    place = folder / "own.yaml"
    place.write_text(body + "routes: {default: {policy: slow}}\n", encoding="utf-8")
    return place


def numbered(path: Path, count: int, extra: str = "") -> Path:
    rows = [json.dumps({"text": f"row {n}{extra}", "label": "short"}) for n in range(count)]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


SLOW = "models: {slow: {backend: python, callable: 'own_models:slow', each: true, probe: [a]}}\n"


def test_every_model_answers_every_row_as_it_does_alone(pool: Path, tmp_path: Path) -> None:
    done = run(pool / "rheostat.yaml", pool / "data.csv", tmp_path / "out.parquet")
    table = load(tmp_path / "out.parquet")
    assert done.complete
    assert table.models == ("fast", "large")
    assert len(table) == done.survey.rows > 300
    fast = load_config(str(pool / "rheostat.yaml")).config.models["fast"].open(str(pool))
    texts = [table.request(row).data for row in range(0, len(table), 25)]
    for row, reply in zip(range(0, len(table), 25), fast.predict(texts), strict=True):  # type: ignore[union-attr]
        outcome = table.outcome("fast", row)
        assert outcome is not None
        assert outcome.prediction is not None
        assert outcome.prediction.label == reply.label  # type: ignore[union-attr]
        assert outcome.prediction.confidence == pytest.approx(reply.confidence, abs=1e-6)  # type: ignore[union-attr]
        assert outcome.elapsed_s > 0.0
    assert set(table.model("large").cost.tolist()) == {10.0}
    train = table.select(split="train")
    assert train.correct("large").mean() > train.correct("fast").mean() > 0.5
    assert {source.split for source in table.sources} == {"train", "dev", "test"}
    assert sum(source.rows for source in table.sources) == len(table)


def test_the_same_again_asks_nobody_and_another_model_file_is_noticed(tmp_path: Path) -> None:
    place = own_config(tmp_path, SLOW)
    data, out = numbered(tmp_path / "data.jsonl", 20), tmp_path / "out.parquet"
    calls = tmp_path / "calls.txt"
    os.environ["CALLS"] = str(calls)
    try:
        assert not run(place, data, out).cached
        calls.unlink()
        assert run(place, data, out).cached
        assert not calls.exists()
        (tmp_path / "own_models.py").write_text(COUNTING + "\nCHANGED = True\n", encoding="utf-8")
        with pytest.raises(DataError, match="made with other models, settings or files"):
            run(place, data, out)
        assert not run(place, data, out, replace=True).cached
        numbered(data, 21)
        with pytest.raises(DataError, match="made with other data"):
            run(place, data, out)
    finally:
        del os.environ["CALLS"]


def test_a_row_that_breaks_a_model_fails_alone(tmp_path: Path) -> None:
    place = own_config(tmp_path, SLOW)
    data = tmp_path / "data.jsonl"
    rows = [json.dumps({"text": text, "label": "short"}) for text in ("fine", "boom", "fine too")]
    data.write_text("\n".join(rows), encoding="utf-8")
    os.environ["CALLS"] = os.devnull
    try:
        done = run(place, data, tmp_path / "out.parquet")
    finally:
        del os.environ["CALLS"]
    assert not done.complete
    assert done.failures == {"slow": {"crashed": 1}}
    assert done.table.answered("slow").tolist() == [True, False, True]


def start(folder: Path, env: dict[str, str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "rheostat", "evaluate", "own.yaml", "data.jsonl", "--out", "out.parquet"]
    return subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def wait_for_calls(place: Path, count: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 60.0
    while time.monotonic() < until and process.poll() is None:
        if place.exists() and len(place.read_text().splitlines()) >= count:
            return
        time.sleep(0.01)
    raise AssertionError("the job did not get that far")


def test_a_killed_run_goes_on_where_it_was_and_no_row_is_lost_or_done_twice(tmp_path: Path) -> None:
    total, in_flight = 400, 40
    own_config(tmp_path, SLOW)
    data = numbered(tmp_path / "data.jsonl", total)
    env = {**os.environ, "CALLS": str(tmp_path / "calls.txt"), "PAUSE": "0.003"}
    for part in (1, 2):
        process = start(tmp_path, env)
        wait_for_calls(tmp_path / "calls.txt", part * total // 3, process)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not (tmp_path / "out.parquet").exists()
        with (tmp_path / "out.parquet.part" / "journal.bin").open("ab") as journal:
            journal.write(b"\x99\x00\x00\x00torn")
    process = start(tmp_path, env)
    assert process.wait(60) == 0
    table = load(tmp_path / "out.parquet")
    rows = [row for row in (tmp_path / "calls.txt").read_text().splitlines() if row.startswith("row ")]
    assert total <= len(rows) <= total + 2 * in_flight
    assert set(rows) == {f"row {n}" for n in range(total)}
    wanted = [item.id for item in LabelledSet([Part(data)])]  # type: ignore[union-attr]
    assert sorted(table.ids) == sorted(wanted)
    assert not (tmp_path / "out.parquet.part").exists()


def test_a_model_that_stays_away_stops_the_run_and_what_was_done_is_kept(tmp_path: Path) -> None:
    place = own_config(
        tmp_path,
        "models:\n  slow: {backend: python, callable: 'own_models:slow', each: true, probe: [a]}\n"
        "  away: {backend: python, callable: 'own_models:Flaky'}\n",
    )
    data, out, down = numbered(tmp_path / "data.jsonl", 200), tmp_path / "out.parquet", tmp_path / "down"
    os.environ.update(CALLS=os.devnull, DOWN=str(down))
    try:
        down.touch()
        with pytest.raises(EvaluationStopped, match="away failed on 20 rows in a row"):
            run(place, data, out, tries=1)
        assert not out.exists()
        with pytest.raises(ResumeError, match="unfinished run"):
            run(place, numbered(tmp_path / "other.jsonl", 200, "x"), out)
        down.unlink()
        done = run(place, data, out, tries=1)
    finally:
        del os.environ["CALLS"], os.environ["DOWN"]
    assert 0 < done.resumed < 20
    assert len(done.table) == 200
    assert done.table.answered("slow").all()
    assert int(done.table.answered("away").sum()) == 200 - done.resumed


def test_training_cards_and_their_mistakes(pool: Path, tmp_path: Path) -> None:
    card = pool / "fast.onnx.card.json"
    try:
        card.write_text('{"train_accuracy": 0.91, "converged": true}', encoding="utf-8")
        done = run(pool / "rheostat.yaml", pool / "data.csv", tmp_path / "out.parquet", models=("fast",))
        found = done.table.model_info["fast"].card
        assert found is not None
        assert (found.train_accuracy, found.converged) == (0.91, True)
        card.write_text('{"train_accuracy": "high"}', encoding="utf-8")
        with pytest.raises(DataError, match="is no training card"):
            run(pool / "rheostat.yaml", pool / "data.csv", tmp_path / "other.parquet")
    finally:
        card.unlink()


def test_unknown_models_and_models_that_break_the_contract(pool: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="did you mean 'fast'"):
        run(pool / "rheostat.yaml", pool / "data.csv", tmp_path / "out.parquet", models=("fats",))
    place = own_config(tmp_path, "models: {slow: {backend: python, callable: 'own_models:nothing'}}\n")
    with pytest.raises(ConfigError, match="nothing"):
        run(place, pool / "data.csv", tmp_path / "out.parquet")
    with pytest.raises(ValueError, match="batch"):
        Work(batch=0)
