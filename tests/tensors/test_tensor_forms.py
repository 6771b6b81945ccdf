"""A tensor goes through each form of the protocol unchanged, and whatever else comes is refused with a reason."""

import json
import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rheostat.tensors import Tensor, TensorError
from rheostat.tensors.binary_form import from_bytes, to_bytes
from rheostat.tensors.http_body import read_tensors, split, written
from rheostat.tensors.json_form import from_json

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "BYTES": st.text(max_size=5),
    "BOOL": st.booleans(),
    "INT8": st.integers(-128, 127),
    "INT64": st.integers(-(1 << 63), (1 << 63) - 1),
    "UINT16": st.integers(0, 65535),
    "UINT64": st.integers(0, (1 << 64) - 1),
    "FP16": st.floats(width=16, allow_nan=False, allow_infinity=False),
    "FP32": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "FP64": st.floats(allow_nan=False, allow_infinity=False),
}


@st.composite
def tensors(draw: Any, name: str = "t") -> Tensor:
    datatype = draw(st.sampled_from(sorted(VALUES)))
    shape = tuple(draw(st.lists(st.integers(0, 3), max_size=3)))
    size = math.prod(shape)
    return Tensor(name, datatype, shape, draw(st.lists(VALUES[datatype], min_size=size, max_size=size)))


def same(one: Tensor, other: Tensor) -> bool:
    return (*one[:2], tuple(one.shape), list(one.values)) == (*other[:2], tuple(other.shape), list(other.values))


@given(several=st.lists(tensors(), max_size=4), binary=st.lists(st.booleans(), min_size=4, max_size=4))
def test_what_is_written_is_read_back(several: list[Tensor], binary: list[bool]) -> None:
    several = [tensor._replace(name=f"t{index}") for index, tensor in enumerate(several)]
    objects, parts = written(several, binary[: len(several)])
    head = json.dumps(objects).encode()
    front, rest = split(head + b"".join(parts), str(len(head)) if parts else None)
    read = read_tensors(json.loads(front), rest)
    assert len(read) == len(several)
    assert all(same(one, other) for one, other in zip(several, read, strict=True))


nested = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=12,
)


@given(
    data=nested,
    shape=st.lists(st.integers(-1, 4), max_size=4) | nested,
    datatype=st.sampled_from(["FP32", "INT64", "BOOL", "BYTES", "x"]),
)
def test_whatever_comes_is_a_tensor_of_its_shape_or_is_refused(data: Any, shape: Any, datatype: str) -> None:
    try:
        tensor = from_json({"name": "t", "shape": shape, "datatype": datatype, "data": data})
    except TensorError:
        return
    assert len(tensor.values) == math.prod(tensor.shape)
    assert all(isinstance(value, str) if datatype == "BYTES" else math.isfinite(value) for value in tensor.values)


@given(raw=st.binary(max_size=40), shape=st.lists(st.integers(0, 5), max_size=3), datatype=st.sampled_from(sorted(VALUES)))
def test_any_bytes_are_a_tensor_or_are_refused(raw: bytes, shape: list[int], datatype: str) -> None:
    try:
        tensor = from_bytes("t", datatype, shape, raw)
    except TensorError:
        return
    assert len(tensor.values) == math.prod(shape)
    again = to_bytes(tensor) if datatype not in ("FP16", "FP32", "FP64", "BOOL") else raw
    assert again == raw


def binary(datatype: str, shape: list[Any], size: Any, name: str = "t") -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": size}}


@pytest.mark.parametrize(
    ("objects", "rest", "told"),
    [
        ([binary("FP32", [2], 8)], b"1234567", "7 bytes are left"),
        ([binary("FP32", [2], 8)], b"123456789", "1 bytes behind"),
        ([binary("FP32", [2], 4)], b"1234", "takes 8 bytes, got 4"),
        ([binary("FP32", [1 << 40, 1 << 40, 1 << 40], 4)], b"1234", "got 4"),
        ([binary("BYTES", [1 << 62, 1 << 62], 4)], b"1234", "too few"),
        ([binary("FP32", [-1], 4)], b"1234", "a shape"),
        ([binary("FP32", [1 << 64], 4)], b"1234", "a shape"),
        ([binary("FP32", [1.0], 4)], b"1234", "a shape"),
        ([binary("FP32", [True], 4)], b"1234", "a shape"),
        ([binary("FP32", [1] * 17, 4)], b"1234", "a shape"),
        ([binary("FP32", [1], -4)], b"1234", "binary_data_size"),
        ([binary("FP32", [1], "4")], b"1234", "binary_data_size"),
        ([binary("FP32", [1], 4.0)], b"1234", "binary_data_size"),
        ([binary("FP32", [1], 10**30)], b"1234", "binary_data_size"),
        ([binary("BF16", [2], 4)], b"1234", "BF16"),
        ([{**binary("FP32", [1], 4), "data": [1.0]}], b"1234", "both"),
        ([binary("FP32", [1], 4), binary("FP32", [1], 4)], b"12345678", "one name"),
        ([binary("BYTES", [1], 8)], struct.pack("<I", 5) + b"abcd", "ends behind"),
        ([binary("BYTES", [1], 8)], struct.pack("<I", 3) + b"abcd", "its 1 texts take 7"),
        ([binary("BYTES", [2], 8)], struct.pack("<I", 4) + b"abcd", "ends behind"),
        ([binary("BYTES", [1], 8)], struct.pack("<I", 4) + b"\xff\xfe\x00\x01", "not UTF-8"),
        ([binary("BYTES", [1], 8)], struct.pack("<I", 0xFFFFFFFF) + b"abcd", "ends behind"),
        ([{"name": "", "datatype": "FP32", "shape": [0], "data": []}], b"", "name"),
        ([{"name": "t", "datatype": "FP32", "shape": [0], "data": [], "parameters": []}], b"", "parameters"),
        ([{"name": "t", "datatype": "INT8", "shape": [1], "data": [200]}], b"", "from -128 to 127"),
        ([{"name": "t", "datatype": "BOOL", "shape": [1], "data": [1]}], b"", "true or false"),
        ("t", b"", "a list of tensors"),
    ],
)
def test_lies_about_sizes_and_shapes_are_named(objects: Any, rest: bytes, told: str) -> None:
    with pytest.raises(TensorError) as caught:
        read_tensors(objects, memoryview(rest))
    assert told in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("length", ["", "-1", "5", "abc", "1e0", "9" * 5000, "٣", "0x1"])
def test_a_length_of_the_json_that_cannot_be(length: str) -> None:
    with pytest.raises(TensorError, match="Inference-Header-Content-Length"):
        split(b"abcd", length)


def test_a_number_that_does_not_fit_its_datatype_is_not_written() -> None:
    with pytest.raises(TensorError, match="FP16"):
        to_bytes(Tensor("t", "FP16", [1], [1e300]))
