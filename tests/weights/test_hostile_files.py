"""Files of weights made to be misread: whatever stands in them, they are read right or refused in words."""

from __future__ import annotations

import itertools
import json
import os
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from raw_tensors import bytes_of, raw

from rheostat.errors import WeightsError
from rheostat.weights import Tensor, WeightStore, apply_delta, hash_of, make_delta, read_tensors, write_tensors

WHOLE = {"w": ("I16", [2], b"abcd"), "v": ("F32", [1], b"1234")}


def written(path: Path, header: object, body: bytes = b"abcd") -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)
    return path


def entry(**more: object) -> dict[str, object]:
    return {"dtype": "I16", "shape": [2], "data_offsets": [0, 4], **more}


HOSTILE: dict[str, object] = {
    "a name twice": b'{"w":{"dtype":"I16","shape":[2],"data_offsets":[0,4]},'
    b'"w":{"dtype":"U16","shape":[2],"data_offsets":[0,4]}}',
    "a field twice": b'{"w":{"dtype":"I16","dtype":"U16","shape":[2],"data_offsets":[0,4]}}',
    "two over the same bytes": {"w": entry(), "v": entry()},
    "a hole": {"w": entry(data_offsets=[2, 4], shape=[1])},
    "beyond the end": {"w": entry(data_offsets=[0, 1 << 40], shape=[1 << 39])},
    "before the start": {"w": entry(data_offsets=[-4, 0])},
    "from back to front": {"w": entry(data_offsets=[4, 0])},
    "a type of another size": {"w": entry(dtype="F64")},
    "a side below 0": {"w": entry(shape=[-1, -2])},
    "a side that is no number": {"w": entry(shape=["2"])},
    "a side with a fraction": {"w": entry(shape=[2.5])},
    "an endless side": b'{"w":{"dtype":"I16","shape":[1e999],"data_offsets":[0,4]}}',
    "true as a side": {"w": entry(shape=[2, True])},
    "more numbers than can be counted": {"w": entry(shape=[0, 1 << 62, 1 << 62], data_offsets=[0, 0]), "v": entry()},
    "more sides than anybody takes": {"w": entry(shape=[2] + [1] * 100)},
    "three offsets": {"w": entry(data_offsets=[0, 2, 4])},
    "no entry": {"w": None},
    "a list": [entry()],
    "a number": 5,
    "nested without end": b"[" * 200_000,
    "nested in an entry": b'{"w":' + b"[" * 200_000,
    "half of a character": b'{"\\ud800":{"dtype":"I16","shape":[2],"data_offsets":[0,4]}}',
    "another encoding": json.dumps({"w": entry()}).encode("utf-16"),
    "metadata that is no text": {"__metadata__": {"labels": ["a"]}, "w": entry()},
    "metadata that is a list": {"__metadata__": ["a"], "w": entry()},
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_header_that_lies_is_refused(tmp_path: Path, what: str) -> None:
    with pytest.raises(WeightsError, match=r"bad\.safetensors"):
        read_tensors(written(tmp_path / "bad.safetensors", HOSTILE[what]))


@pytest.mark.parametrize("length", [0, 1, 1 << 31, 1 << 40, (1 << 64) - 1])
def test_a_length_that_lies_reads_nothing(tmp_path: Path, length: int) -> None:
    path = raw(tmp_path / "bad.safetensors", WHOLE)
    path.write_bytes(length.to_bytes(8, "little") + path.read_bytes()[8:])
    with pytest.raises(WeightsError, match="no safetensors file"):
        read_tensors(path)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.safetensors")
    for path in (tmp_path / "pipe.safetensors", tmp_path):
        with pytest.raises(WeightsError, match="is no file"):
            read_tensors(path)


def test_a_tensor_without_sides_and_without_numbers_is_one(tmp_path: Path) -> None:
    header = {"__metadata__": None, "s": {"dtype": "I16", "shape": [], "data_offsets": [0, 2]},
              "e": {"dtype": "F32", "shape": [0, 7], "data_offsets": [2, 2]}}  # fmt: skip
    read = read_tensors(written(tmp_path / "a.safetensors", header, b"ab"))
    assert {name: (each.shape, each.size) for name, each in read.tensors.items()} == {"s": ((), 2), "e": ((0, 7), 0)}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for every example."""
    folder = tmp_path_factory.mktemp("hostile")
    made = (folder / str(number) for number in itertools.count())
    return (place for place in made if not place.mkdir())  # type: ignore[func-returns-value]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)
entries = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["I16", "F32", "U8", "F33", ""]) | json_values,
        "shape": st.lists(st.integers(-2, 4), max_size=3) | json_values,
        "data_offsets": st.tuples(st.integers(-2, 9), st.integers(-2, 9)) | json_values,
    }
)


@settings(max_examples=120, deadline=None)
@given(st.dictionaries(st.text(max_size=4), entries | json_values, max_size=3) | json_values, st.binary(max_size=12))
def test_any_header_is_read_right_or_refused(places: Iterator[Path], header: Any, body: bytes) -> None:
    path = written(next(places) / "f.safetensors", header, body)
    _whole_or_refused(path, body)


@settings(max_examples=120, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=6), st.integers(0, 200))
def test_any_damage_is_read_right_or_refused(places: Iterator[Path], changes: list[tuple[int, int]], cut: int) -> None:
    path = raw(next(places) / "f.safetensors", WHOLE, {"labels": "[]"})
    content = bytearray(path.read_bytes())
    for place, value in changes:
        content[place % len(content)] = value
    path.write_bytes(bytes(content[: len(content) - cut // 10]))
    _whole_or_refused(path, None)


def _whole_or_refused(path: Path, body: bytes | None) -> None:
    """What is read lies in the file, side by side, and is as large as its type and shape say."""
    try:
        read = read_tensors(path)
    except WeightsError:
        return
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    assert body is None or content[start:] == body
    spans = sorted((each.offset, each.size) for each in read.tensors.values())
    assert sum(size for _, size in spans) == len(content) - start
    for offset, size in spans:
        assert offset == start
        start += size
    for each in read.tensors.values():
        assert len(bytes_of(each)) == each.size
        assert all(isinstance(side, int) and side >= 0 for side in each.shape)
        hash_of(each)


lists = st.dictionaries(st.text(max_size=4), json_values | st.fixed_dictionaries(
    {"dtype": st.sampled_from(["I16", "X"]), "shape": st.lists(st.integers(-1, 3), max_size=3),
     "sha256": st.sampled_from(["0" * 64, "../" * 21 + "x", ""])}), max_size=3)  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(json_values | st.fixed_dictionaries({"format": st.just("rheostat-weights/1"), "digest": st.text(), "tensors": lists}))
def test_any_list_of_a_store_is_refused(places: Iterator[Path], content: Any) -> None:
    folder = next(places) / "models"
    folder.mkdir()
    (folder / "m.json").write_text(json.dumps(content))
    if isinstance(content, dict) and content.get("tensors") == {}:
        return  # nothing in it, so nothing can be wrong but its digest
    with pytest.raises(WeightsError, match=r"m\.json"):
        read_tensors(folder / "m.json")


def test_a_list_whose_entries_were_exchanged_is_refused(tmp_path: Path) -> None:
    source = raw(tmp_path / "a.safetensors", {"a": ("I16", [1], b"aa"), "b": ("I16", [1], b"bb")})
    path = WeightStore(tmp_path / "store").add(source, "m").path
    content = json.loads(path.read_text())
    content["tensors"]["a"], content["tensors"]["b"] = content["tensors"]["b"], content["tensors"]["a"]
    path.write_text(json.dumps(content))
    with pytest.raises(WeightsError, match="contradicts itself: its tensors are not those"):
        read_tensors(path)


@pytest.mark.parametrize("key", ["removed", "sha256", "metadata"])
@pytest.mark.parametrize("value", ["5", '"w"', '{"w": 5}', "[5]", "[" * 100_000, ""])
def test_a_difference_that_lies_is_refused(tmp_path: Path, key: str, value: str) -> None:
    old = raw(tmp_path / "old.safetensors", WHOLE)
    new = raw(tmp_path / "new.safetensors", {**WHOLE, "w": ("I16", [2], b"abcD")})
    make_delta(old, new, tmp_path / "d.safetensors")
    read = read_tensors(tmp_path / "d.safetensors")
    write_tensors(tmp_path / "bad.safetensors", read.tensors, {**read.metadata, key: value})
    with pytest.raises(WeightsError, match=r"bad\.safetensors is a damaged delta"):
        apply_delta(old, tmp_path / "bad.safetensors", tmp_path / "out.safetensors")
    assert not (tmp_path / "out.safetensors").exists()


def test_a_file_replaced_after_its_header_was_read_is_not_mixed_with_it(tmp_path: Path) -> None:
    read = read_tensors(raw(tmp_path / "a.safetensors", WHOLE))
    raw(tmp_path / "b.safetensors", {"v": WHOLE["v"], "w": WHOLE["w"]})
    (tmp_path / "b.safetensors").replace(tmp_path / "a.safetensors")
    with pytest.raises(WeightsError, match="was replaced while it was read"):
        hash_of(read.tensors["w"])
    again = read_tensors(tmp_path / "a.safetensors")
    assert bytes_of(again.tensors["w"]) == b"abcd"


@contextmanager
def full_disk(most: int) -> Iterator[None]:
    """No file may become larger than `most` bytes, which fails as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    small = raw(tmp_path / "small.safetensors", WHOLE)
    large = raw(tmp_path / "large.safetensors", {**WHOLE, "x": ("U8", [100_000], bytes(100_000))})
    store = WeightStore(tmp_path / "store")
    store.add(small, "m")
    out = shutil.copy(small, tmp_path / "out.safetensors")
    with full_disk(50_000):
        with pytest.raises(WeightsError, match="cannot be written: File too large"):
            store.add(large, "m", replace=True)
        with pytest.raises(WeightsError, match=r"out\.safetensors cannot be written"):
            write_tensors(out, read_tensors(large).tensors, {})
    assert set(store.models()["m"].tensors) == {"w", "v"}
    assert store.verify() == []
    assert out.read_bytes() == small.read_bytes()
    assert not list((store.path / "parts").iterdir())
    assert not list(tmp_path.glob(".*"))
    assert store.collect().bytes == 0
    store.add(large, "m", replace=True)
    assert store.verify() == []


def test_no_folder_for_it_is_said_as_such(tmp_path: Path) -> None:
    source = raw(tmp_path / "a.safetensors", WHOLE)
    with pytest.raises(WeightsError, match="cannot be written: No such file"):
        write_tensors(tmp_path / "gone" / "out.safetensors", read_tensors(source).tensors, {})
    with pytest.raises(WeightsError, match="there can be no weight store at"):
        WeightStore(source / "store").add(source, "m")


def test_a_name_taken_meanwhile_is_not_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = raw(tmp_path / "one.safetensors", WHOLE)
    other = raw(tmp_path / "other.safetensors", {**WHOLE, "w": ("I16", [2], b"ABCD")})
    store, rival = WeightStore(tmp_path / "store"), WeightStore(tmp_path / "store")
    write = store._write

    def slowly(tensor: Tensor, sha256: str) -> None:
        write(tensor, sha256)
        rival.add(other, "m", replace=True)

    monkeypatch.setattr(store, "_write", slowly)
    with pytest.raises(WeightsError, match="m names other weights"):
        store.add(one, "m")
    assert bytes_of(store.models()["m"].tensors["w"]) == b"ABCD"
