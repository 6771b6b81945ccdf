"""Threads of models in this process and in their own: as many as the container or the config says."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from rheostat.backends.onnx import OnnxModel
from rheostat.pool import Backend
from rheostat.pool.model import Model
from rheostat.pool.processors import processors
from rheostat.pool.threads import compute_threads, threads_told
from rheostat.types import Prediction

FEATURES = tuple(f"f{number}" for number in range(64))


def system(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "count"),
    [
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "200000 100000\n"}, 2),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}, 1),
        ({"proc/self/cgroup": "0::/pod\n", "sys/fs/cgroup/pod/cpu.max": "max 100000\n",
          "sys/fs/cgroup/cpu.max": "250000 100000"}, 3),
        ({"proc/self/cgroup": "4:cpu,cpuacct:/\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "400000",
          "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"}, 4),
        ({"proc/self/cgroup": "4:cpu:/\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
          "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"}, 64),
        ({}, 64),
    ],
)  # fmt: skip
def test_processors_are_those_of_the_container_not_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], count: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(64)))
    assert processors(system(tmp_path, files)) == count


def test_the_cpu_set_counts_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {3, 5})
    assert processors(system(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "800000 100000"})) == 2


def written(path: Path) -> Path:
    """Write a classifier whose sums are large enough for several threads to share."""
    chance = np.random.default_rng(1)
    sizes = (len(FEATURES), 512, 512, 3)
    weights = [
        numpy_helper.from_array((chance.standard_normal(pair) / pair[0] ** 0.5).astype(np.float32), f"w{layer}")
        for layer, pair in enumerate(pairwise(sizes))
    ]
    nodes, last = [], "X"
    for layer in range(len(weights)):
        nodes.append(helper.make_node("MatMul", [last, f"w{layer}"], [f"h{layer}"]))
        last = f"h{layer}"
    nodes.append(helper.make_node("Softmax", [last], ["probabilities"]))
    given = helper.make_tensor_value_info("X", TensorProto.FLOAT, [None, len(FEATURES)])
    made = helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [None, 3])
    graph = helper.make_graph(nodes, "g", [given], [made], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(path))
    return path


def model_of(path: Path, threads: int, **given: object) -> Model:
    settings = OnnxModel(path=path.name, features=FEATURES, labels=("a", "b", "c"), threads=threads, run="thread", **given)  # type: ignore[arg-type]
    return Model(f"m{threads}", settings, settings.open(str(path.parent)))


def test_results_are_equal_for_every_number_of_threads(tmp_path: Path) -> None:
    path = written(tmp_path / "m.onnx")
    chance = np.random.default_rng(2)
    rows = [dict(zip(FEATURES, chance.standard_normal(len(FEATURES)).tolist(), strict=True)) for _ in range(40)]
    said = []
    for threads in (1, 2, 4):
        backend = model_of(path, threads).backend
        assert isinstance(backend, Backend)
        said.append([reply.scores for reply in backend.predict(rows) if isinstance(reply, Prediction)])
    assert len(said[0]) == len(rows)
    for other in said[1:]:
        for one, two in zip(said[0], other, strict=True):
            assert one is not None
            assert two is not None
            assert [two[label] for label in one] == pytest.approx(list(one.values()), abs=1e-5)


def test_the_total_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rheostat.pool.model.processors", lambda: 2)
    monkeypatch.setattr("rheostat.pool.threads.processors", lambda: 2)
    path = written(tmp_path / "m.onnx")
    models = {"one": model_of(path, 1), "two": model_of(path, 4), "few": model_of(path, 1, max_concurrency=1)}
    assert [compute_threads(model) for model in models.values()] == [2, 5, 1]
    assert threads_told(models) == (
        "models compute on up to 8 threads (one: 2 (thread), two: 5 (thread), few: 1 (thread)); 2 processors may be used"
    )
    assert models["one"].limit == 2
