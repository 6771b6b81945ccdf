"""Students and 8-bit files: what they say is what is reported, and traps are named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from lab_tables import columns, table

from rheostat.backends.onnx import OnnxModel
from rheostat.lab.outcomes import OutcomesTable
from rheostat.lab.smaller import DistilError, compare, distil, quantize_file, with_model
from rheostat.lab.smaller.compare import ratio

onnx = pytest.importorskip("onnx")
pytest.importorskip("skl2onnx")

WORDS = {"a": ["apple", "pear", "plum"], "b": ["bolt", "nut", "screw"], "c": ["cat", "dog", "cow"]}


def taught(n: int = 900, words: dict[str, list[str]] = WORDS) -> OutcomesTable:
    """A teacher that is right on 95 % of the rows; right labels are known on test only."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, n)
    said = np.where(rng.random(n) < 0.95, truth, (truth + 1) % 3)
    texts = [" ".join(["see", *rng.choice(words["abc"[code]], 2), f"x{row}"]) for row, code in enumerate(truth.tolist())]
    split = rng.choice(["train", "dev", "test"], n, p=[0.5, 0.25, 0.25])
    scores = np.full((n, 3), 0.05)
    scores[np.arange(n), said] = 0.9
    large = columns(said.tolist(), [0.9] * n, cost=20.0, latency=0.01, scores=scores)
    known = np.where(split == "test", truth, -1)
    return table(
        known.tolist(), {"large": large}, split=split.tolist(), labels=("a", "b", "c"),
        inputs=[json.dumps(text) for text in texts],
    )  # fmt: skip


def test_a_student_learns_without_labels_and_serves_what_was_reported(tmp_path: Path) -> None:
    base = taught()
    student = distil(base, "large", tmp_path / "student.onnx")
    wide = with_model(base, "student", student.scores, cost=1.0, latency_s=float(student.waits.mean()))
    found = compare(wide, "large", "student", sizes=(10**6, student.size))
    assert found.accuracy is not None
    assert found.accuracy[1].mean > 0.97  # the teacher's slips are no rule that a student could learn
    assert found.agreement.mean == pytest.approx(0.95, abs=0.05)
    assert found.speed.mean > 1.0
    assert found.on_hull
    served = OnnxModel(path="student.onnx").open(str(tmp_path))
    replies = served.predict(["see apple plum", "see nut bolt", "see cat dog"])
    assert [reply.label for reply in replies] == ["a", "b", "c"]  # type: ignore[union-attr]


def test_right_labels_are_never_read(tmp_path: Path) -> None:
    base = taught()
    shuffled = replace(base, truth=np.random.default_rng(1).permutation(base.truth))
    first, second = (distil(each, "large", tmp_path / f"{at}.onnx").scores for at, each in enumerate((base, shuffled)))
    assert (first == second).all()


def test_what_cannot_be_distilled_is_said(tmp_path: Path) -> None:
    base = taught()
    with pytest.raises(DistilError, match="kept no inputs"):
        distil(replace(base, inputs=None), "large", tmp_path / "s.onnx")
    with pytest.raises(DistilError, match="at least 50 of each"):
        distil(base.subset(base.split != 1), "large", tmp_path / "s.onnx")
    one = columns([0] * len(base), [0.9] * len(base))
    with pytest.raises(DistilError, match="one label only"):
        distil(replace(base, columns={"large": one}), "large", tmp_path / "s.onnx")
    with pytest.raises(DistilError, match="no row has a text"):
        distil(replace(base, inputs=np.array(["[1.0]"] * len(base), dtype=object)), "large", tmp_path / "s.onnx")
    assert not (tmp_path / "s.onnx").exists()


def test_a_name_that_is_taken_and_rows_that_nobody_shares() -> None:
    base = taught(60)
    scores = np.full((len(base), 3), np.nan)
    with pytest.raises(ValueError, match="choose another name"):
        with_model(base, "large", scores, cost=1.0, latency_s=0.0)
    with pytest.raises(ValueError, match="both answered"):
        compare(with_model(base, "s", scores, cost=1.0, latency_s=0.0), "large", "s")


def linear(folder: Path, width: int = 64) -> Path:
    """x @ W with W of three labels, as an ONNX file; row i of the identity means label i."""
    weights = np.random.default_rng(0).normal(0.0, 0.1, (width, 3)).astype(np.float32)
    weights[:3] += 5.0 * np.eye(3, dtype=np.float32)
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Softmax", ["m"], ["probabilities"], axis=1)]
    graph = helper.make_graph(
        nodes, "linear", [helper.make_tensor_value_info("x", kind, [None, width])],
        [helper.make_tensor_value_info("probabilities", kind, [None, 3])], [onnx.numpy_helper.from_array(weights, "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path = folder / "linear.onnx"
    path.write_bytes(model.SerializeToString())
    path.with_name("linear.onnx.json").write_text('{"labels": ["a", "b", "c"]}')
    return path


def test_an_8_bit_file_is_smaller_and_says_nearly_the_same(tmp_path: Path) -> None:
    source = linear(tmp_path, 4096)
    target = quantize_file(source, tmp_path / "small.onnx")
    assert target.stat().st_size < 0.5 * source.stat().st_size
    rows = np.eye(3, 4096).tolist()
    small = OnnxModel(path="small.onnx", labels=("a", "b", "c"), chunk=1).open(str(tmp_path))
    assert [reply.label for reply in small.predict(rows)] == ["a", "b", "c"]  # type: ignore[union-attr]
    with pytest.raises(FileNotFoundError):
        quantize_file(tmp_path / "none.onnx", tmp_path / "x.onnx")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["linear.onnx", "linear.onnx.json", "small.onnx"]


def test_the_ratio_of_means_holds_the_truth() -> None:
    rng = np.random.default_rng(0)
    found = ratio(rng.gamma(4.0, 1.0, 400), rng.gamma(4.0, 0.25, 400))
    assert found.low < 4.0 < found.high
    assert found.high - found.low < 1.0
