"""Case O-MLT-05: a file that is a program in disguise is refused by whoever reads it, and never runs."""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path

import numpy as np
import pytest

from rheostat.errors import ConfigError, RheostatError
from rheostat.router import Router

TORCH = (
    "{backend: torch, module: 'torch.nn:Linear', args: {in_features: 1, out_features: 2}, features: [a], labels: [x, y], "
    "weights: FILE"
)
WHERE = {
    "onnx": "{backend: onnx, path: FILE}",
    "onnx head": "{backend: onnx, path: FILE, head: FILE}",
    "onnx tokenizer": "{backend: onnx, path: FILE, tokenizer: FILE}",
    "scikit-learn": "{backend: sklearn, path: FILE}",
    "scikit-learn, trusted without a hash": "{backend: sklearn, path: FILE, trusted: true}",
    "scikit-learn, another file is trusted": "{backend: sklearn, path: FILE, trusted: true, sha256: '" + "0" * 64 + "'}",
    "torch": TORCH + "}",
    "torch delta": TORCH + ", delta: FILE}",
    "gguf": "{backend: gguf, file: FILE, labels: [a, b]}",
    "calibration": "{backend: template, label: x, calibration: FILE}",
    "profile": "{backend: template, label: x, profile: FILE}",
}
NAMES = ("m.pkl", "m.joblib", "m.pt", "m.npy", "m.safetensors", "m.json", "m.onnx", "m.gguf")


class Bomb:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (self.marker,)  # type: ignore[return-value]


def _blob(name: str, marker: Path, folder: Path) -> bytes:
    if name.endswith(".npy"):
        np.save(folder / "made.npy", np.array([Bomb(marker)], dtype=object), allow_pickle=True)
        return (folder / "made.npy").read_bytes()
    return pickle.dumps(Bomb(marker))


def test_the_bomb_is_one(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    pickle.loads(_blob("m.pkl", marker, tmp_path))
    assert marker.exists()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("where", WHERE)
def test_every_load_is_refused_and_nothing_runs(tmp_path: Path, where: str, name: str) -> None:
    marker = tmp_path / "ran"
    (tmp_path / name).write_bytes(_blob(name, marker, tmp_path))
    path = tmp_path / "rheostat.yaml"
    model = WHERE[where].replace("FILE", name)
    path.write_text(f"models: {{m: {model}}}\nroutes: {{default: {{policy: m}}}}\n")
    with pytest.raises(RheostatError) as refused:
        asyncio.run(Router.open(str(path)))
    assert "models.m" in str(refused.value)
    told = str(refused.value)
    assert name in told or "needs an optional part" in told, told
    assert not marker.exists()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scorer", ["{scorer: learned, path: FILE}", "{policy: {file: FILE}}"])
def test_learned_files_and_policy_files_too(tmp_path: Path, scorer: str, name: str) -> None:
    marker = tmp_path / "ran"
    (tmp_path / name).write_bytes(_blob(name, marker, tmp_path))
    path = tmp_path / "rheostat.yaml"
    text = scorer.replace("FILE", name)
    is_policy = text.startswith("{policy")
    route = text if is_policy else "{policy: m}"
    signals = "" if is_policy else f"signals: {{s: {text}}}\n"
    path.write_text(f"models: {{m: {{backend: template, label: x}}}}\nroutes: {{default: {route}}}\n{signals}")
    with pytest.raises(ConfigError):
        asyncio.run(Router.open(str(path)))
    assert not marker.exists()
