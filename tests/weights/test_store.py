"""The weight store: equal tensors once, several writers at a time, damage noticed, and nothing that is named is deleted."""

import multiprocessing
import os
import time
from pathlib import Path

import pytest
from raw_tensors import bytes_of, raw

from rheostat.errors import WeightsError
from rheostat.weights import WeightStore, digest_of, read_tensors

TRUNK = ("F32", [256], bytes(range(256)) * 4)


def variant(folder: Path, name: str, head: bytes) -> Path:
    return raw(folder / f"{name}.safetensors", {"trunk": TRUNK, "again": TRUNK, "head": ("I16", [2], head)}, {"name": name})


def blobs(store: WeightStore) -> list[Path]:
    return sorted((store.path / "blobs").glob("*/*"))


@pytest.fixture
def store(tmp_path: Path) -> WeightStore:
    return WeightStore(tmp_path / "store")


def test_equal_tensors_lie_there_once(tmp_path: Path, store: WeightStore) -> None:
    first = store.add(variant(tmp_path, "a", b"aaaa"), "a")
    second = store.add(variant(tmp_path, "b", b"bbbb"), "b")
    assert (first.tensors, first.bytes, first.new_bytes) == (3, 2052, 1028)
    assert (second.bytes, second.new_bytes) == (2052, 4)
    assert len(blobs(store)) == 3
    read = read_tensors(second.path)
    assert {name: bytes_of(each) for name, each in read.tensors.items()} == {
        "trunk": TRUNK[2], "again": TRUNK[2], "head": b"bbbb",
    }  # fmt: skip
    assert read.metadata == {"name": "b"}
    assert digest_of(read.tensors) == digest_of(read_tensors(tmp_path / "b.safetensors").tensors)
    assert sorted(store.models()) == ["a", "b"]
    assert all(not os.access(path, os.W_OK) or os.geteuid() == 0 for path in blobs(store))


def test_a_name_means_the_same_weights_until_it_is_replaced(tmp_path: Path, store: WeightStore) -> None:
    store.add(variant(tmp_path, "a", b"aaaa"), "m")
    assert store.add(variant(tmp_path, "a", b"aaaa"), "m").new_bytes == 0
    with pytest.raises(WeightsError, match="names other weights"):
        store.add(variant(tmp_path, "b", b"bbbb"), "m")
    assert bytes_of(store.models()["m"].tensors["head"]) == b"aaaa"
    store.add(variant(tmp_path, "b", b"bbbb"), "m", replace=True)
    assert bytes_of(store.models()["m"].tensors["head"]) == b"bbbb"


@pytest.mark.parametrize("name", ["", "../m", "a/b", ".m", "m" * 200])
def test_a_name_stays_in_the_store(tmp_path: Path, store: WeightStore, name: str) -> None:
    with pytest.raises(WeightsError, match="cannot be a name"):
        store.add(variant(tmp_path, "a", b"aaaa"), name)
    with pytest.raises(WeightsError, match="there is no model"):
        store.remove(name)


def test_only_what_nobody_names_is_collected(tmp_path: Path, store: WeightStore) -> None:
    store.add(variant(tmp_path, "a", b"aaaa"), "a")
    store.add(variant(tmp_path, "b", b"bbbb"), "b")
    (store.path / "parts" / ".left-over.part").write_bytes(b"123")
    assert store.collect() == (0, 1, 3)
    store.remove("a")
    assert store.collect() == (1, 0, 4)
    assert store.verify() == []
    store.remove("b")
    assert store.collect() == (2, 0, 1028)
    assert blobs(store) == []


def test_a_list_that_cannot_be_read_stops_the_collection(tmp_path: Path, store: WeightStore) -> None:
    store.add(variant(tmp_path, "a", b"aaaa"), "a")
    (store.path / "models" / "a.json").write_text("{}")
    with pytest.raises(WeightsError, match=r"a\.json is no model"):
        store.collect()
    assert len(blobs(store)) == 2
    assert "a.json is no model" in store.verify()[0]


def test_damage_is_noticed_and_mended_by_the_next_add(tmp_path: Path, store: WeightStore) -> None:
    source = variant(tmp_path, "a", b"aaaa")
    store.add(source, "a")
    (head,) = (path for path in blobs(store) if path.stat().st_size == 4)
    head.chmod(0o644)
    head.write_bytes(b"aaab")
    os.utime(head, ns=(1, 1))  # the clock of a file system may stand still for a few milliseconds
    assert store.verify() == [f"a: the tensor with hash {head.parent.name}{head.name[:10]} is missing or damaged"]
    assert store.add(source, "a").new_bytes == 4
    assert store.verify() == []
    head.unlink()
    with pytest.raises(WeightsError, match="a tensor is not in the store any more"):
        read_tensors(store.path / "models" / "a.json")
    assert len(store.verify()) == 1


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"F32"', '"F33"', "'trunk'"),
        ("rheostat-weights/1", "other/2", "reads 'rheostat-weights/1'"),
        ("{", "[", "no model of"),
    ],
)
def test_a_list_that_is_wrong_is_refused(tmp_path: Path, store: WeightStore, old: str, new: str, said: str) -> None:
    path = store.add(variant(tmp_path, "a", b"aaaa"), "a").path
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(WeightsError, match=said):
        read_tensors(path)


def test_a_list_cannot_lead_out_of_the_store(tmp_path: Path, store: WeightStore) -> None:
    path = store.add(variant(tmp_path, "a", b"aaaa"), "a").path
    sha256 = store.models()["a"].tensors["head"].sha256
    path.write_text(path.read_text().replace(sha256, "../" * 21 + "x"))
    with pytest.raises(WeightsError, match="'head'"):
        read_tensors(path)


def _write(folder: str, number: int) -> None:
    store = WeightStore(Path(folder) / "store")
    for turn in range(6):
        head = bytes([number, turn, 0, 0])
        store.add(variant(Path(folder), f"w{number}-{turn}", head), f"m{number}", replace=True)
        if turn % 2:
            store.collect()


def test_many_writers_and_collections_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_write, args=(str(tmp_path), number)) for number in range(4)]
    for worker in workers:
        worker.start()
    until = time.monotonic() + 60
    for worker in workers:
        worker.join(max(0.1, until - time.monotonic()))
        assert worker.exitcode == 0
    store = WeightStore(tmp_path / "store")
    assert store.verify() == []
    assert [bytes_of(each.tensors["head"]) for each in store.models().values()] == [
        bytes([number, 5, 0, 0]) for number in range(4)
    ]
    store.collect()
    assert len(blobs(store)) == 5
