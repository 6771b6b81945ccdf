"""What becomes of memory, files and tied tensors over many switches of a torch model's weights."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="pip install 'rheostat[torch]'")
safetensors = pytest.importorskip("safetensors.torch", reason="pip install 'rheostat[torch]'")

from rheostat.backends.torch import TorchClassifier, TorchModel  # noqa: E402
from rheostat.backends.torch_tensors import mapped  # noqa: E402
from rheostat.errors import ConfigError, WeightsError  # noqa: E402
from rheostat.pool.memory import process_bytes, trim  # noqa: E402
from rheostat.types import Prediction  # noqa: E402
from rheostat.weights import WeightStore, make_delta, read_tensors  # noqa: E402

MODULES = '''
import torch
from torch import nn

class Wide(nn.Module):
    """A MiB in the trunk, and nearly as much in the head."""
    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(2, 90_000)
        self.head = nn.Linear(90_000, 2)
    def forward(self, x): return self.head(torch.tanh(self.trunk(x)))

def wide():
    with torch.device("meta"):
        return Wide()

class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(2, 2), nn.Linear(2, 2)
        self.two.weight = self.one.weight
    def forward(self, x): return self.two(self.one(x))

def tied(): return Tied()
'''
MIB = 2**20


def settings(module: str, weights: str, **more: Any) -> TorchModel:
    return TorchModel(module=f"switched:{module}", weights=weights, features=("a", "b"), labels=("no", "yes"), **more)


def opened(folder: Path, module: str, weights: str, **more: Any) -> TorchClassifier:
    backend = settings(module, weights, **more).open(str(folder))
    assert isinstance(backend, TorchClassifier)
    return backend


def saved(path: Path, tensors: Mapping[str, Any]) -> Path:
    safetensors.save_file(dict(tensors), path)
    return path


def wide(seed: int) -> dict[str, Any]:
    torch.manual_seed(seed)
    sizes = {"trunk.weight": (90_000, 2), "trunk.bias": (90_000,), "head.weight": (2, 90_000), "head.bias": (2,)}
    return {name: torch.randn(size) / 600 for name, size in sizes.items()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "switched.py").write_text(MODULES)
    return tmp_path


def maps(folder: Path) -> list[str]:
    return [line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if str(folder) in line]


@pytest.mark.parametrize("way", ["whole", "stored", "delta", "head"])
def test_memory_is_where_it_began_after_two_hundred_switches(folder: Path, way: str) -> None:
    first, second = wide(1), wide(2)
    second |= {name: first[name] for name in ("trunk.weight", "trunk.bias")}
    store = WeightStore(folder / "store")
    for name, tensors in (("one", first), ("two", second)):
        store.add(saved(folder / f"{name}.safetensors", tensors), name)
    make_delta(folder / "one.safetensors", folder / "two.safetensors", folder / "delta.safetensors")
    saved(folder / "head.safetensors", {name: second[name] for name in ("head.weight", "head.bias")})
    base = "store/models/one.json"
    turns = {
        "whole": (settings("wide", "one.safetensors"), settings("wide", "two.safetensors")),
        "stored": (settings("wide", base), settings("wide", "store/models/two.json")),
        "delta": (settings("wide", base), settings("wide", base, delta="delta.safetensors")),
        "head": (settings("wide", base), settings("wide", base, head="head.safetensors")),
    }[way]
    backend: Any = turns[0].open(str(folder))
    taken, mapped_files = [], []
    for turn in range(208):
        new = backend.successor(turns[(turn + 1) % 2], str(folder))
        (reply,) = new.predict([{"a": 1.0, "b": -turn / 100}])
        assert isinstance(reply, Prediction)
        backend.close()
        backend = new
        del new
        if turn % 2:
            trim()
            taken.append(process_bytes())
            mapped_files.append(len(maps(folder)))
    # After the fourth switch, the hundred that follow and the hundred after them take nothing: a leak of the least thing
    # that a switch maps, 0.7 MiB, would be 140 MiB.
    assert max(taken[4:]) - taken[4] < 6 * MIB
    assert len(set(mapped_files)) == 1
    backend.close()
    assert maps(folder) == []


def test_a_store_is_collected_while_a_model_of_it_answers(folder: Path) -> None:
    store = WeightStore(folder / "store")
    store.add(saved(folder / "one.safetensors", wide(1)), "one")
    backend = opened(folder, "wide", "store/models/one.json")
    before = backend.predict([{"a": 1.0, "b": 2.0}])
    store.remove("one")
    assert store.collect().blobs == 4
    assert backend.predict([{"a": 1.0, "b": 2.0}]) == before
    assert all(name.startswith("(deleted)") for name in maps(folder))
    with pytest.raises(ConfigError, match="weights"):
        backend.successor(settings("wide", "store/models/one.json", version="2"), str(folder))
    assert backend.predict([{"a": 1.0, "b": 2.0}]) == before
    backend.close()
    assert maps(folder) == []


def test_a_file_replaced_between_its_header_and_its_mapping_is_refused(folder: Path) -> None:
    read = read_tensors(saved(folder / "one.safetensors", {"w": torch.ones(4)}))
    saved(folder / "other.safetensors", {"w": torch.zeros(4)})
    shutil.move(folder / "other.safetensors", folder / "one.safetensors")
    with pytest.raises(WeightsError, match="was replaced while it was read"):
        mapped(read.tensors, False)


def tied(weight: float, **more: float) -> dict[str, Any]:
    values = {"one.weight": weight, **{name.replace("_", "."): each for name, each in more.items()}}
    made = {name: torch.full((2, 2), value) for name, value in values.items()}
    return made | {"one.bias": torch.zeros(2), "two.bias": torch.tensor([0.0, 1.0])}


def test_tensors_that_the_module_ties_must_agree(folder: Path) -> None:
    saved(folder / "agree.safetensors", tied(0.5, two_weight=0.5))
    saved(folder / "differ.safetensors", tied(0.5, two_weight=0.25))
    saved(folder / "head.safetensors", {"two.weight": torch.full((2, 2), 0.25)})
    said = r"one\.weight and two\.weight are one tensor in the module and differ|two\.weight and one\.weight are"
    with pytest.raises(ConfigError, match=said):
        opened(folder, "tied", "differ.safetensors")
    backend = opened(folder, "tied", "agree.safetensors")
    before = backend.predict([{"a": 1.0, "b": 2.0}])
    for more in ({"weights": "differ.safetensors"}, {"weights": "agree.safetensors", "head": "head.safetensors"}):
        with pytest.raises(ConfigError, match=said):
            backend.successor(settings("tied", **more), str(folder))
        with pytest.raises(ConfigError, match=said):
            opened(folder, "tied", **more)
    assert backend.predict([{"a": 1.0, "b": 2.0}]) == before
