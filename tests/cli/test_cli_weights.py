"""`rheostat weights` and `rheostat delta`, as a user types them."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, head in (("base", b"aaaa"), ("tuned", b"bbbb"), ("other", b"cccc")):
        tensors = {"trunk": ("F32", [1 << 18], bytes(1 << 20)), "head": ("I16", [2], head)}
        header, body = {}, b""
        for key, (dtype, shape, data) in tensors.items():
            header[key] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
            body += data
        text = json.dumps(header).encode()
        Path(f"{name}.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + body)
    return tmp_path


def test_a_family_in_the_store(run: Run, folder: Path) -> None:
    said = run(["weights", "add", "base.safetensors", "tuned.safetensors"]).stdout
    assert "base: 2 tensors, 1.0 MiB of 1.0 MiB were new; in a config: weights: weights/models/base.json" in said
    assert "tuned: 2 tensors, 4 bytes of 1.0 MiB were new" in said
    assert "1.0 MiB in all; as separate files 2.0 MiB" in run(["weights", "list"]).stdout
    listed = json.loads(run(["weights", "list", "--json"]).stdout)
    assert [(each["name"], each["shared_bytes"]) for each in listed["models"]] == [
        ("base", 1 << 20),
        ("tuned", 1 << 20),
    ]
    refused = run(["weights", "add", "other.safetensors", "--name", "base"], code=1)
    assert "names other weights in this store already" in refused.stderr
    run(["weights", "remove", "tuned"])
    assert "freed 4 bytes: 1 tensors that no model names" in run(["weights", "gc"]).stdout
    assert "all tensors of 1 models" in run(["weights", "verify"]).stdout
    (blob,) = (path for path in folder.glob("weights/blobs/*/*") if path.stat().st_size == 4)
    blob.chmod(0o644)
    blob.write_bytes(b"zzz")
    assert "missing or damaged" in run(["weights", "verify"], code=1).stderr


def test_what_is_not_there_is_said(run: Run, folder: Path) -> None:
    for verb in ("list", "gc", "verify"):
        assert "there is no weight store at nowhere" in run(["weights", verb, "--store", "nowhere"], code=1).stderr
    assert "there is no model 'x'" in run(["weights", "remove", "x", "--store", "nowhere"], code=1).stderr
    assert "gone.safetensors cannot be read" in run(["weights", "add", "gone.safetensors"], code=1).stderr
    assert not (folder / "nowhere").exists()


def test_a_difference_there_and_back(run: Run, folder: Path) -> None:
    said = run(["delta", "make", "base.safetensors", "tuned.safetensors", "-o", "d.safetensors"]).stdout
    assert said == "wrote d.safetensors: 1 of 2 tensors differ, 0.0% of 1.0 MiB\n"
    run(["delta", "apply", "base.safetensors", "d.safetensors", "-o", "again.safetensors"])
    assert (folder / "again.safetensors").read_bytes()[-4:] == b"bbbb"
    assert "--force" in run(["delta", "make", "base.safetensors", "tuned.safetensors", "-o", "d.safetensors"], code=2).stderr
    wrong = run(["delta", "apply", "other.safetensors", "d.safetensors", "-o", "no.safetensors"], code=1)
    assert "changes other weights" in wrong.stderr
    assert not (folder / "no.safetensors").exists()
