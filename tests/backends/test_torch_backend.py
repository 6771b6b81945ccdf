"""The torch backend: real modules, files of the format's own writer, and what becomes of a module whose tensors change."""

import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

torch = pytest.importorskip("torch", reason="pip install 'rheostat[torch]'")
safetensors = pytest.importorskip("safetensors.torch", reason="pip install 'rheostat[torch]'")

from rheostat.backends import check_contract  # noqa: E402
from rheostat.backends.torch import TorchClassifier, TorchModel  # noqa: E402
from rheostat.errors import ConfigError, ContractError, ModelError  # noqa: E402
from rheostat.pool.backend import Backend, Row  # noqa: E402
from rheostat.types import Prediction  # noqa: E402
from rheostat.weights import WeightStore, make_delta  # noqa: E402

MODULES = '''
import torch
from torch import nn

class Net(nn.Module):
    """A trunk with a buffer that is not saved, and a head."""
    def __init__(self, width=4):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Dropout(0.9))
        self.head = nn.Linear(width, 2)
        with torch.device("cpu"):
            self.register_buffer("shift", torch.full((2,), 0.5), persistent=False)
    def forward(self, x):
        return self.head(self.trunk(x)) + self.shift

def net(width=4):
    with torch.device("meta"):
        return Net(width)
def plain(width=4): return Net(width)
def half(): return Net().to(torch.bfloat16)
def lost():
    module = net()
    module.register_buffer("lost", torch.zeros(1, device="meta"), persistent=False)
    return module
def fails(): raise RuntimeError("no such size")
def no_module(): return "net"

class Texts(nn.Module):
    """Mean of word vectors under the mask; the output's matrix is tied to the words' one."""
    def __init__(self, words, width=2):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.again = nn.Linear(width, words, bias=False)
        self.again.weight = self.words.weight
    def forward(self, input_ids, attention_mask):
        mask = attention_mask.unsqueeze(-1).float()
        return {"logits": (self.words(input_ids) * mask).sum(1) / mask.sum(1).clamp(min=1) + 0 * self.again.weight.sum()}
def texts(words): return Texts(words)
class Wrong(Texts):
    def forward(self, ids): return ids
def wrong(words): return Wrong(words)

class Recurrent(nn.Module):
    """Keeps its tensors in a list besides, as every nn.RNN does."""
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTM(2, 2, batch_first=True)
    def forward(self, x): return self.cell(x.unsqueeze(1))[0][:, 0]
def recurrent(): return Recurrent()
'''
ROW = {"a": 1.0, "b": -2.0}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "my_nets.py").write_text(MODULES)
    return tmp_path


def state(seed: int, width: int = 4) -> dict[str, Any]:
    torch.manual_seed(seed)
    sizes = {"trunk.0.weight": (width, 2), "trunk.0.bias": (width,), "head.weight": (2, width), "head.bias": (2,)}
    return {name: torch.randn(size) for name, size in sizes.items()}


def saved(path: Path, tensors: Mapping[str, Any], **metadata: str) -> str:
    safetensors.save_file(dict(tensors), path, metadata=metadata or None)
    return path.name


def settings(**more: Any) -> TorchModel:
    given = {"module": "my_nets:net", "weights": "w.safetensors", "features": ("a", "b"), "labels": ("no", "yes")}
    return TorchModel(**{**given, **more})


def opened(folder: Path, **more: Any) -> TorchClassifier:
    backend = settings(**more).open(str(folder))
    assert isinstance(backend, TorchClassifier)
    return backend


def scores(backend: Backend, row: Row = ROW) -> list[float]:
    (reply,) = backend.predict([row])
    assert isinstance(reply, Prediction)
    assert reply.scores is not None
    return list(reply.scores.values())


def expected(tensors: Mapping[str, Any], row: tuple[float, float] = (1.0, -2.0)) -> list[float]:
    hidden = torch.tanh(tensors["trunk.0.weight"] @ torch.tensor(row) + tensors["trunk.0.bias"])
    logits = tensors["head.weight"] @ hidden + tensors["head.bias"] + 0.5
    return [float(each) for each in torch.softmax(logits, 0)]


@pytest.mark.parametrize("factory", ["net", "plain"])
def test_features_through_a_module_with_its_weights_put_in(folder: Path, factory: str) -> None:
    saved(folder / "w.safetensors", state(1))
    backend = opened(folder, module=f"my_nets:{factory}")
    assert scores(backend) == pytest.approx(expected(state(1)), abs=1e-6)
    assert check_contract("m", backend, settings()).skipped == ""
    right, wrong = backend.predict([ROW, {"a": "no number", "b": 0.0}])
    assert isinstance(right, Prediction)
    assert isinstance(wrong, ModelError)
    assert wrong.kind == "input_refused"
    backend.close()
    (reply,) = backend.predict([ROW])
    assert isinstance(reply, ModelError)
    assert reply.kind == "unavailable"


def test_texts_of_any_length_answer_alone_as_in_a_batch(folder: Path) -> None:
    words = {"[UNK]": 0, "[PAD]": 1, "good": 2, "bad": 3}
    tokenizer = Tokenizer(WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    vectors = torch.tensor([[0.0, 0.0], [9.0, 9.0], [-2.0, 2.0], [2.0, -2.0]])
    saved(folder / "w.safetensors", {"words.weight": vectors}, labels=json.dumps(["neg", "pos"]))
    given = {"module": "my_nets:texts", "args": {"words": 4}, "tokenizer": "tokenizer.json", "features": (), "labels": ()}
    backend = opened(folder, **given, chunk=2, max_length=8)
    rows = ["good", "bad bad bad", "good good bad", "", "bad", "good " * 500]
    replies = backend.predict(rows)
    assert [reply.label for reply in replies if isinstance(reply, Prediction)] == ["pos", "neg", "pos", "neg", "neg", "pos"]
    assert check_contract("m", backend, settings(**given)).skipped == ""
    with pytest.raises(ConfigError, match=r"forward of my_nets:wrong takes \(ids\).*`input_ids`"):
        opened(folder, **given | {"module": "my_nets:wrong"})


@pytest.mark.parametrize(
    ("change", "more", "said"),
    [
        (lambda t: t.pop("head.bias"), {}, r"missing: head\.bias"),
        (lambda t: t.update(extra=torch.zeros(1)), {}, "the module has no extra"),
        (
            lambda _: None,
            {"args": {"width": 5}},
            r"trunk\.0\.weight is float32 \[4, 2\] in the file and float32 \[5, 2\] in",
        ),
        (lambda _: None, {"module": "my_nets:half"}, r"module\.to\(torch\.float32\)"),
        (lambda _: None, {"module": "my_nets:lost"}, r"lost is on `meta` and not in the file"),
        (lambda _: None, {"module": "my_nets:fails"}, "my_nets:fails failed: RuntimeError: no such size"),
        (lambda _: None, {"args": {"depth": 5}}, "unexpected keyword argument 'depth'"),
        (lambda _: None, {"module": "my_nets:no_module"}, "has to return an nn.Module, it returned str"),
        (lambda _: None, {"module": "my_nets:nett"}, "did you mean 'net'"),
        (lambda _: None, {"weights": "gone.safetensors"}, "cannot be read"),
        (lambda _: None, {"weights": "my_nets.py"}, "no safetensors file"),
        (lambda _: None, {"delta": "w.safetensors"}, "is no delta"),
        (lambda _: None, {"head": "my_nets.py"}, "no safetensors file"),
        (lambda _: None, {"labels": ()}, "list them in the order of the outputs"),
    ],
)
def test_what_is_wrong_is_said(folder: Path, change: Callable[[Any], Any], more: dict[str, Any], said: str) -> None:
    tensors = state(1)
    change(tensors)
    saved(folder / "w.safetensors", tensors)
    with pytest.raises(ConfigError, match=said):
        opened(folder, **more)


def test_exactly_one_way_in() -> None:
    with pytest.raises(ValueError, match="`tokenizer` or `features`"):
        TorchModel(module="m:f", weights="w")


def test_weights_that_are_no_numbers_break_the_contract(folder: Path) -> None:
    saved(folder / "w.safetensors", state(1) | {"head.bias": torch.tensor([float("nan"), 0.0])})
    with pytest.raises(ContractError, match="finite scores"):
        check_contract("m", opened(folder), settings())


def variants(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two sets of weights of which only the head differs, as files, as models of a store and as a difference."""
    one, other = state(1), state(1) | {"head.weight": torch.randn(2, 4), "head.bias": torch.randn(2)}
    store = WeightStore(folder / "store")
    for name, tensors in (("one", one), ("other", other)):
        saved(folder / f"{name}.safetensors", tensors)
        store.add(folder / f"{name}.safetensors", name)
    saved(folder / "head.safetensors", {name: other[name] for name in ("head.weight", "head.bias")})
    make_delta(folder / "one.safetensors", folder / "other.safetensors", folder / "delta.safetensors")
    return one, other


WAYS = {
    "another file": ({"weights": "one.safetensors"}, {"weights": "other.safetensors"}),
    "another model of the store": ({"weights": "store/models/one.json"}, {"weights": "store/models/other.json"}),
    "a difference": ({"weights": "one.safetensors"}, {"weights": "one.safetensors", "delta": "delta.safetensors"}),
    "a difference to the store": ({"weights": "store/models/one.json"},
                                  {"weights": "store/models/one.json", "delta": "delta.safetensors"}),
    "a head": ({"weights": "one.safetensors"}, {"weights": "one.safetensors", "head": "head.safetensors"}),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_a_successor_answers_by_the_new_weights_and_the_old_one_by_the_old(folder: Path, way: str) -> None:
    one, other = variants(folder)
    before, after = WAYS[way]
    old = opened(folder, **before)
    new = old.successor(settings(**after, version="2"), str(folder))
    assert new is not None
    assert scores(new) == scores(opened(folder, **after)) == pytest.approx(expected(other), abs=1e-6)
    assert scores(old) == pytest.approx(expected(one), abs=1e-6)
    shares_trunk = way != "another file"
    assert (new._module.trunk is old._module.trunk) == shares_trunk  # type: ignore[attr-defined]
    back = new.successor(settings(**before), str(folder))  # type: ignore[attr-defined]
    assert scores(back) == scores(old)
    old.close()
    assert scores(new) == pytest.approx(expected(other), abs=1e-6)
    new.close()
    assert scores(back) == pytest.approx(expected(one), abs=1e-6)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"weights": "other.safetensors", "delta": "delta.safetensors"}, "changes other weights"),
        ({"weights": "wide.safetensors"}, r"float32 \[5, 2\] in the file and float32 \[4, 2\]"),
        ({"head": "one.safetensors.cut"}, "cut off"),
    ],
)
def test_a_successor_that_cannot_be_leaves_the_old_one(folder: Path, more: dict[str, Any], said: str) -> None:
    one, _ = variants(folder)
    saved(folder / "wide.safetensors", state(1, 5))
    (folder / "one.safetensors.cut").write_bytes((folder / "one.safetensors").read_bytes()[:-4])
    old = opened(folder, weights="one.safetensors")
    with pytest.raises(ConfigError, match=said):
        old.successor(settings(**{"weights": "one.safetensors", **more}), str(folder))
    assert scores(old) == pytest.approx(expected(one), abs=1e-6)


@pytest.mark.parametrize("verify", ["hash", "size"])
def test_a_damaged_tensor_is_refused_when_hashes_are_wanted(folder: Path, verify: str) -> None:
    variants(folder)
    whole = (folder / "delta.safetensors").read_bytes()
    (folder / "delta.safetensors").write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    more = {"weights": "store/models/one.json", "delta": "delta.safetensors", "verify": verify}
    old = opened(folder, weights="store/models/one.json")
    if verify == "hash":
        with pytest.raises(ConfigError, match="damaged"):
            opened(folder, **more)
        with pytest.raises(ConfigError, match="damaged"):
            old.successor(settings(**more), str(folder))
    else:
        assert old.successor(settings(**more), str(folder)) is not None


def test_more_than_other_weights_is_no_successor(folder: Path) -> None:
    variants(folder)
    old = opened(folder, weights="one.safetensors")
    for more in ({"module": "my_nets:plain"}, {"args": {"width": 4}}, {"features": ("b", "a")}):
        assert old.successor(settings(**{"weights": "other.safetensors", **more}), str(folder)) is None
    (folder / "my_nets.py").write_text(MODULES + "\n# changed\n")
    assert old.successor(settings(weights="other.safetensors"), str(folder)) is None
    old.close()
    assert old.successor(settings(weights="other.safetensors"), str(folder)) is None


def test_a_module_that_keeps_tensors_elsewhere_is_opened_anew(folder: Path) -> None:
    torch.manual_seed(3)
    tensors = torch.nn.LSTM(2, 2).state_dict()
    saved(folder / "w.safetensors", {f"cell.{name}": each for name, each in tensors.items()})
    saved(folder / "v.safetensors", {f"cell.{name}": each + 1 for name, each in tensors.items()})
    old = opened(folder, module="my_nets:recurrent")
    before = scores(old)
    assert old.successor(settings(module="my_nets:recurrent", weights="v.safetensors"), str(folder)) is None
    assert scores(opened(folder, module="my_nets:recurrent", weights="v.safetensors")) != before
    assert scores(old) == before


def test_tied_tensors_stay_tied_in_a_successor(folder: Path) -> None:
    words = {"[UNK]": 0, "good": 1}
    tokenizer = Tokenizer(WordLevel(words, unk_token="[UNK]"))
    tokenizer.save(str(folder / "tokenizer.json"))
    for name in ("w", "v"):
        saved(folder / f"{name}.safetensors", {"words.weight": torch.randn(2, 2)})
    given = {"module": "my_nets:texts", "args": {"words": 2}, "tokenizer": "tokenizer.json", "features": ()}
    old = opened(folder, **given)
    new = old.successor(settings(**given, weights="v.safetensors"), str(folder))
    assert isinstance(new, TorchClassifier)
    for each in (old, new):
        assert each._module.again.weight is each._module.words.weight
    assert scores(new, "good") != scores(old, "good")


def test_a_file_is_mapped_once_and_never_written(folder: Path) -> None:
    variants(folder)
    backends = [opened(folder, weights=f"store/models/{name}.json") for name in ("one", "other", "one")]
    places = [backend._module.trunk[0].weight.data_ptr() for backend in backends]
    assert len(set(places)) == 1
    before = (folder / "one.safetensors").read_bytes()
    backend = opened(folder, weights="one.safetensors")
    with torch.no_grad():
        backend._module.head.weight.fill_(7.0)
    assert (folder / "one.safetensors").read_bytes() == before


def test_what_no_model_uses_any_more_is_unmapped(folder: Path) -> None:
    variants(folder)
    backend = opened(folder, weights="store/models/one.json")

    def maps() -> set[str]:
        lines = Path("/proc/self/maps").read_text().splitlines()
        return {line.split()[-1] for line in lines if str(folder) in line}

    before = maps()
    assert len(before) == 4
    for turn in range(50):
        more: dict[str, Any] = {"delta": "delta.safetensors"} if turn % 2 == 0 else {}
        new = backend.successor(settings(weights="store/models/one.json", **more), str(folder))
        assert isinstance(new, TorchClassifier)
        backend.close()
        backend = new
        del new
        assert (str(folder / "delta.safetensors") in maps()) == (turn % 2 == 0)
    assert maps() == before
    backend.close()
    assert maps() == set()


def test_successors_while_others_answer(folder: Path) -> None:
    one, other = variants(folder)
    wanted = {"1": expected(one), "2": expected(other)}
    current: list[tuple[str, TorchClassifier]] = [("1", opened(folder, weights="store/models/one.json"))]
    wrong: list[object] = []
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            version, backend = current[0]
            got = scores(backend)
            if got != pytest.approx(wanted[version], abs=1e-5):
                wrong.append((version, got))

    askers = [threading.Thread(target=ask) for _ in range(3)]
    for asker in askers:
        asker.start()
    for turn in range(100):
        version = "2" if turn % 2 == 0 else "1"
        name = {"1": "one", "2": "other"}[version]
        new = current[0][1].successor(settings(weights=f"store/models/{name}.json"), str(folder))
        assert isinstance(new, TorchClassifier)
        current[0] = (version, new)
    done.set()
    for asker in askers:
        asker.join()
    assert wrong == []


def test_settings_as_they_stand_in_a_file() -> None:
    text = b'{"backend": "torch", "module": "m:f", "weights": "w.safetensors", "features": ["a"], "delta": "d.safetensors"}'
    assert msgspec.json.decode(text, type=TorchModel).delta == "d.safetensors"
