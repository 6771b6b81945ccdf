from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lab_tables import columns, synthetic, table

from rheostat.lab.outcomes import FAILURE_KINDS, ModelInfo, OutcomesTable, Source, TrainingCard
from rheostat.lab.outcomes_file import Header, OutcomesFileError, load, save
from rheostat.lab.outcomes_writer import OutcomesWriter, ResumeError
from rheostat.types import Failure, Outcome, Prediction

TIMEOUT = 1 + FAILURE_KINDS.index("timeout")


def same(a: OutcomesTable, b: OutcomesTable) -> None:
    assert a.models == b.models
    assert (a.labels, a.model_info, a.data_hash, a.sources) == (b.labels, b.model_info, b.data_hash, b.sources)
    for name in ("ids", "split", "truth", "inputs", "meta"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)
    for model in a.models:
        for part in ("label", "confidence", "latency_s", "cost", "failure", "scores"):
            np.testing.assert_array_equal(getattr(a.model(model), part), getattr(b.model(model), part), err_msg=part)


def test_save_and_load_keep_everything(tmp_path: Path) -> None:
    whole = table(
        [0, 1, -1, 1],
        {
            "a.b": columns([0, 1, -1, -1], [0.1, 0.7, np.nan, np.nan], failure=[0, 0, TIMEOUT, -1]),
            "large": columns([0, 0, 1, 1], scores=np.array([[1, 0], [0.5, 0.5], [np.nan, np.nan], [0.25, 0.75]])),
        },
        split=["train", "dev", "test", "test"],
        info={"a.b": ModelInfo(version="7", lighter="x", card=TrainingCard(train_accuracy=0.5, converged=False))},
        inputs=['"one"', '{"x":1}', "null", '"vier"'],
    )
    save(whole, tmp_path / "t.parquet")
    same(load(tmp_path / "t.parquet"), whole)
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]


def test_an_empty_table_is_a_table(tmp_path: Path) -> None:
    save(table([], {"a": columns([])}), tmp_path / "t.parquet")
    assert len(load(tmp_path / "t.parquet")) == 0


def test_load_refuses_what_is_not_ours(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    with pytest.raises(OutcomesFileError, match="does not exist"):
        load(path)
    path.write_bytes(b"no parquet")
    with pytest.raises(OutcomesFileError, match="cannot be read as Parquet"):
        load(path)
    pq.write_table(pa.table({"x": [1]}), path)
    with pytest.raises(OutcomesFileError, match="no outcomes table"):
        load(path)
    newer = msgspec.json.encode(Header(version=99))
    pq.write_table(pa.table({"x": [1]}).replace_schema_metadata({b"rheostat": newer}), path)
    with pytest.raises(OutcomesFileError, match=r"version 99.*upgrade"):
        load(path)
    save(synthetic(50), path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(OutcomesFileError, match="torn"):
        load(path)


def test_load_refuses_a_file_whose_columns_were_cut(tmp_path: Path) -> None:
    save(synthetic(20), tmp_path / "t.parquet")
    whole = pq.read_table(tmp_path / "t.parquet")
    pq.write_table(whole.drop_columns(["small.failure"]), tmp_path / "t.parquet")
    with pytest.raises(OutcomesFileError, match=r"small\.failure"):
        load(tmp_path / "t.parquet")


def test_rows_that_cannot_be_judged_are_counted_by_reason() -> None:
    whole = table(
        [0, 1, -1, 1, 0],
        {
            "small": columns([0, 1, 0, -1, 0], failure=[0, 0, 0, TIMEOUT, 0]),
            "large": columns([0, 0, 0, 1, -1], failure=[0, 0, 0, 0, -1]),
        },
    )
    names = ("small", "large")
    assert whole.complete(names).tolist() == [True, True, False, False, False]
    assert whole.left_out(names) == {
        "no right label given": 1, "small failed: timeout": 1, "no outcome of large recorded": 1
    }  # fmt: skip
    assert whole.correct("large").tolist() == [True, False, False, True, False]
    assert sum(whole.left_out(names).values()) == (~whole.complete(names)).sum()


def test_a_row_comes_back_as_outcomes_and_request() -> None:
    whole = table(
        [0, 1],
        {
            "small": columns([0, -1], [0.9, np.nan], latency=0.25, cost=2, failure=[0, TIMEOUT],
                             scores=np.array([[0.75, 0.25], [np.nan, np.nan]])),
            "large": columns([1, -1], failure=[0, -1]),
        },
        inputs=['{"text": "hi"}', '"there"'],
    )  # fmt: skip
    first, second = whole.row_outcomes(0), whole.row_outcomes(1)
    assert first["small"].prediction == Prediction("no", 0.9, {"no": 0.75, "yes": 0.25})
    assert first["large"].confidence is None
    assert (first["small"].elapsed_s, first["small"].cost, first["small"].served_by) == (0.25, 2.0, "small")
    assert set(second) == {"small"}
    assert second["small"].failure == Failure("timeout")
    assert (whole.request(0).text, whole.request(1).text, whole.request(1).data) == ("hi", "there", "there")


def test_selecting_and_mistakes_teach() -> None:
    whole = synthetic(300)
    parts = [whole.select(split=name) for name in ("train", "dev", "test")]
    assert sum(map(len, parts)) == 300
    assert parts[1].data_hash == whole.data_hash
    with pytest.raises(ValueError, match="train, dev, test"):
        whole.select(split="valid")
    with pytest.raises(KeyError, match="it has: small, large"):
        whole.model("lrage")
    with pytest.raises(ValueError, match=r"a\.label has 2 rows"):
        table([0], {"a": columns([0, 0])})
    with pytest.raises(ValueError, match=r"a\.label holds code 5"):
        table([0], {"a": columns([5])})


def test_the_data_hash_names_the_rows_not_the_models() -> None:
    base = table([0, 1], {"a": columns([0, 0])})
    other_model = table([0, 1], {"b": columns([1, 1])})
    more_labels = table([1, 2], {"a": columns([0, 0])}, labels=("aaa", "no", "yes"))
    assert base.data_hash == other_model.data_hash == more_labels.data_hash
    assert table([1, 1], {"a": columns([0, 0])}).data_hash != base.data_hash


# ---------------------------------------------------------------------------------------------------------- the writer

MODELS = {"small": ModelInfo(cost=1), "large": ModelInfo(cost=9, version="3")}


def said(model: str, label: str, confidence: float | None = None) -> Outcome:
    scores = {label: 0.5, "other": 0.5} if model == "large" else None
    return Outcome(model, Prediction(label, confidence, scores), elapsed_s=0.5, cost=2.0)


def fill(writer: OutcomesWriter, rows: range) -> None:
    for i in rows:
        if f"r{i}" in writer.done_ids():
            continue
        outcomes = {"small": said("small", f"l{i % 3}", 0.25)}
        if i % 5:
            outcomes["large"] = said("large", f"l{i % 2}")
        if i % 7 == 0:
            outcomes["small"] = Outcome("small", failure=Failure("crashed", "boom"), elapsed_s=1.0)
        writer.append(f"r{i}", ("train", "dev", "test")[i % 3], f"l{i % 3}" if i % 4 else None, outcomes, input=f"t{i}")


def test_writer_makes_the_table_in_one_go_or_in_bits(tmp_path: Path) -> None:
    one = OutcomesWriter(tmp_path / "one", MODELS, data_hash="h", sources=[Source(name="f", hash="1", split="test")])
    fill(one, range(100))
    whole = one.finish(tmp_path / "one.parquet")
    assert not (tmp_path / "one").exists()
    for stop in (10, 37, 100):
        bits = OutcomesWriter(tmp_path / "bits", MODELS, data_hash="h", sources=whole.sources, batch=8)
        fill(bits, range(stop))
        bits.close()
    again = OutcomesWriter(tmp_path / "bits", MODELS, data_hash="h", sources=whole.sources)
    assert len(again.done_ids()) == 100
    same(again.finish(), whole)
    same(load(tmp_path / "one.parquet"), whole)
    assert whole.outcome("large", 0) is None
    assert whole.outcome("small", 7).failure.kind == "crashed"  # type: ignore[union-attr]
    assert whole.request(3).text == "t3"
    assert whole.truth[4] == -1


@settings(max_examples=30, deadline=None)
@given(cut=st.integers(1, 400), flip=st.booleans())
def test_a_torn_journal_is_recognised_and_its_rows_are_done_again(
    cut: int, flip: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("torn")
    writer = OutcomesWriter(folder, MODELS, batch=4)
    fill(writer, range(20))
    writer.close()
    journal = folder / "journal.bin"
    raw = bytearray(journal.read_bytes())
    if flip:
        raw[-cut] ^= 0xFF
    else:
        del raw[-cut:]
    journal.write_bytes(bytes(raw))
    again = OutcomesWriter(folder, MODELS, batch=4)
    assert len(again.done_ids()) < 20
    fill(again, range(20))
    assert again.finish().ids.tolist() == [f"r{i}" for i in range(20)]


def test_a_killed_run_goes_on(tmp_path: Path) -> None:
    script = f"""
import sys, time
sys.path[:0] = {[str(Path(__file__).parent)]!r}
from test_outcomes import MODELS, OutcomesWriter, said
writer = OutcomesWriter({str(tmp_path / "run")!r}, MODELS, batch=5)
for i in range(10**9):
    writer.append(f"r{{i}}", "test", "l0", {{"small": said("small", "l0", 0.5)}})
    time.sleep(0.0005)
"""
    run = subprocess.Popen([sys.executable, "-c", script])
    journal = tmp_path / "run" / "journal.bin"
    until = time.monotonic() + 30
    while not (journal.exists() and journal.stat().st_size > 2000) and time.monotonic() < until:
        time.sleep(0.01)
    run.send_signal(signal.SIGKILL)
    run.wait()
    writer = OutcomesWriter(tmp_path / "run", MODELS, batch=5)
    done = writer.done_ids()
    assert len(done) >= 5
    assert done == {f"r{i}" for i in range(len(done))}
    assert len(writer.finish()) == len(done)


def test_writer_refuses_to_mix_runs(tmp_path: Path) -> None:
    writer = OutcomesWriter(tmp_path, MODELS, data_hash="a")
    with pytest.raises(ResumeError, match="in use"):
        OutcomesWriter(tmp_path, MODELS, data_hash="a")
    fill(writer, range(3))
    with pytest.raises(ValueError, match="unique"):
        writer.append("r0", "test", None, {})
    with pytest.raises(ValueError, match="lagre"):
        writer.append("r9", "test", None, {"lagre": said("lagre", "x")})
    writer.close()
    with pytest.raises(ResumeError, match="another labelled file"):
        OutcomesWriter(tmp_path, MODELS, data_hash="b")
    with pytest.raises(ResumeError, match="versions of large"):
        OutcomesWriter(tmp_path, {**MODELS, "large": ModelInfo(cost=9, version="4")}, data_hash="a")
    with pytest.raises(ResumeError, match="models small, large instead of small"):
        OutcomesWriter(tmp_path, {"small": MODELS["small"]}, data_hash="a")


def test_text_that_no_file_can_hold_is_kept_readable(tmp_path: Path) -> None:
    writer = OutcomesWriter(tmp_path / "w", MODELS)
    writer.append("r\ud800", "test", "l\udfff", {}, input="bad \ud800 text")
    whole = writer.finish(tmp_path / "t.parquet")
    assert (whole.ids[0], whole.labels, whole.request(0).data) == ("r?", ("l?",), "bad ? text")
    same(load(tmp_path / "t.parquet"), whole)


def test_a_run_that_never_got_to_its_first_row_stands_in_nobodys_way(tmp_path: Path) -> None:
    first = OutcomesWriter(tmp_path / "o.part", {"a": ModelInfo()}, data_hash="one")
    first.close()
    second = OutcomesWriter(tmp_path / "o.part", {"a": ModelInfo()}, data_hash="two")
    second.append("r", "dev", "x", {"a": Outcome("a", Prediction("x", 0.5))})
    second.close()
    with pytest.raises(ResumeError):
        OutcomesWriter(tmp_path / "o.part", {"a": ModelInfo()}, data_hash="three")
    again = OutcomesWriter(tmp_path / "o.part", {"a": ModelInfo()}, data_hash="two")
    assert again.done_ids() == {"r"}
    again.close()
