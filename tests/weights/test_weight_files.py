"""Files of tensors: the format's own writer is understood, anything else is refused, and nothing of it is ever run."""

import os
import pickle
from pathlib import Path

import pytest
from raw_tensors import bytes_of, raw

from rheostat.errors import WeightsError
from rheostat.weights import digest_of, read_tensors, write_tensors


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    given = read_tensors(
        raw(
            tmp_path / "a.safetensors",
            {"w": ("I16", [2], b"abcd"), "b": ("F64", [1], b"12345678"), "e": ("F32", [0, 3], b"")},
            {"labels": '["no", "yes"]'},
        )
    )
    write_tensors(tmp_path / "b.safetensors", given.tensors, given.metadata)
    again = read_tensors(tmp_path / "b.safetensors")
    assert again.metadata == {"labels": '["no", "yes"]'}
    assert {name: (each.dtype, each.shape, bytes_of(each)) for name, each in again.tensors.items()} == {
        "w": ("I16", (2,), b"abcd"),
        "b": ("F64", (1,), b"12345678"),
        "e": ("F32", (0, 3), b""),
    }
    assert all(each.offset % 8 == 0 for each in again.tensors.values() if each.dtype == "F64")
    assert digest_of(again.tensors) == digest_of(given.tensors)


def test_the_digest_tells_names_types_shapes_and_bytes_apart(tmp_path: Path) -> None:
    ways = [
        {"w": ("I16", [2], b"abcd")}, {"v": ("I16", [2], b"abcd")}, {"w": ("U16", [2], b"abcd")},
        {"w": ("I16", [2, 1], b"abcd")}, {"w": ("I16", [2], b"abce")}, {},
    ]  # fmt: skip
    found = {digest_of(read_tensors(raw(tmp_path / f"{n}.safetensors", way)).tensors) for n, way in enumerate(ways)}
    assert len(found) == len(ways)


class Bomb:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.mark}",)


@pytest.mark.parametrize("suffix", [".safetensors", ".json", ".pt", ".pkl"])
def test_a_pickle_is_refused_and_never_run(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"weights{suffix}"
    path.write_bytes(pickle.dumps(Bomb(tmp_path / "mark")))
    with pytest.raises(WeightsError, match=path.name):
        read_tensors(path)
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda _: b"", "no safetensors file"),
        (lambda whole: whole[:5], "no safetensors file"),
        (lambda whole: whole[:-1], "cut off"),
        (lambda whole: whole + b"x", "too long"),
        (lambda whole: whole.replace(b"[2]", b"[3]"), "contradicts itself about tensor 'w'"),
        (lambda whole: whole.replace(b"[0, 4]", b"[1, 4]"), "contradicts itself about tensor 'w'"),
        (lambda whole: whole.replace(b"data_offsets", b"date_offsets"), "no safetensors file"),
        (lambda whole: (1 << 62).to_bytes(8, "little") + whole[8:], "no safetensors file"),
    ],
)
def test_a_broken_file_is_refused(tmp_path: Path, spoil: object, said: str) -> None:
    path = raw(tmp_path / "a.safetensors", {"w": ("I16", [2], b"abcd")})
    path.write_bytes(spoil(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(WeightsError, match=said):
        read_tensors(path)


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    source = raw(tmp_path / "a.safetensors", {"w": ("I16", [2], b"abcd")})
    target = tmp_path / "b.safetensors"
    target.write_bytes(b"old")
    tensors = read_tensors(source).tensors
    source.unlink()
    with pytest.raises(WeightsError, match=r"a\.safetensors cannot be read"):
        write_tensors(target, tensors, {})
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["b.safetensors"]
