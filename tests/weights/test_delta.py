"""The difference between two sets of weights leads from the one to the other, bit for bit, and from nowhere else."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from raw_tensors import bytes_of, raw

from rheostat.errors import WeightsError
from rheostat.weights import TensorSet, WeightStore, apply_delta, digest_of, make_delta, read_tensors
from rheostat.weights.tensor import SIZES

Raw = dict[str, tuple[str, list[int], bytes]]


@st.composite
def tensors(draw: st.DrawFn) -> Raw:
    made: Raw = {}
    for name in draw(st.sets(st.sampled_from(["a", "b", "trunk.0.weight", "kopf.gewicht", "头"]))):
        dtype = draw(st.sampled_from(sorted(SIZES)))
        shape = draw(st.lists(st.integers(0, 3), max_size=3))
        size = SIZES[dtype]
        for side in shape:
            size *= side
        made[name] = (dtype, shape, draw(st.binary(min_size=size, max_size=size)))
    return made


def content(path: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    return {name: (each.dtype, each.shape, bytes_of(each)) for name, each in read_tensors(path).tensors.items()}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    return (tmp_path_factory.mktemp("delta") for _ in itertools.count())


@settings(max_examples=80, deadline=None)
@given(tensors(), tensors(), st.sets(st.sampled_from(["a", "b", "头"])), st.booleans())
def test_old_and_difference_make_new(folders: Iterator[Path], old: Raw, new: Raw, kept: set[str], stored: bool) -> None:
    folder = next(folders)
    new |= {name: old[name] for name in kept if name in old}  # so that some tensors are equal
    one = raw(folder / "old.safetensors", old)
    other = raw(folder / "new.safetensors", new, {"labels": '["x"]'})
    if stored:
        one = WeightStore(folder / "store").add(one, "old", replace=True).path
    made = make_delta(one, other, folder / "delta.safetensors")
    apply_delta(one, folder / "delta.safetensors", folder / "again.safetensors")
    assert content(folder / "again.safetensors") == content(other)
    assert read_tensors(folder / "again.safetensors").metadata == {"labels": '["x"]'}
    differing = {name for name in new if old.get(name) != new[name]}
    assert made.changed == len(differing)
    assert set(read_tensors(folder / "delta.safetensors").tensors) == differing


@pytest.fixture
def made(tmp_path: Path) -> Path:
    raw(tmp_path / "old.safetensors", {"w": ("I16", [2], b"abcd"), "v": ("U8", [1], b"v")})
    raw(tmp_path / "new.safetensors", {"w": ("I16", [2], b"abcD"), "v": ("U8", [1], b"v")})
    raw(tmp_path / "other.safetensors", {"w": ("I16", [2], b"abcd"), "v": ("U8", [1], b"V")})
    make_delta(tmp_path / "old.safetensors", tmp_path / "new.safetensors", tmp_path / "delta.safetensors")
    (tmp_path / "out.safetensors").write_bytes(b"as it was")
    return tmp_path


def refused(folder: Path, base: str, delta: str, said: str) -> None:
    with pytest.raises(WeightsError, match=said):
        apply_delta(folder / base, folder / delta, folder / "out.safetensors")
    assert (folder / "out.safetensors").read_bytes() == b"as it was"
    assert not list(folder.glob(".*"))


def test_another_base_is_refused_and_nothing_is_changed(made: Path) -> None:
    refused(made, "other.safetensors", "delta.safetensors", "changes other weights.*make it again")
    refused(made, "new.safetensors", "delta.safetensors", "changes other weights")


def test_weights_are_no_difference(made: Path) -> None:
    refused(made, "old.safetensors", "new.safetensors", "is no delta; `rheostat delta make")


def test_damage_is_noticed(made: Path) -> None:
    whole = (made / "delta.safetensors").read_bytes()
    (made / "delta.safetensors").write_bytes(whole.replace(b"abcD", b"abCD"))
    refused(made, "old.safetensors", "delta.safetensors", "'w'.*damaged")
    (made / "delta.safetensors").write_bytes(whole.replace(b'"w"', b'"x"'))
    refused(made, "old.safetensors", "delta.safetensors", "contradicts itself")
    read = read_tensors(made / "new.safetensors")
    raw(made / "delta.safetensors", {}, {"format": "rheostat-delta/1", "base": digest_of(read.tensors)})
    refused(made, "old.safetensors", "delta.safetensors", "damaged delta")


def test_no_difference_is_a_small_file(made: Path) -> None:
    assert make_delta(made / "old.safetensors", made / "old.safetensors", made / "none.safetensors").changed == 0
    assert read_tensors(made / "none.safetensors").tensors == {}
    assert TensorSet({}, {}).size == 0
