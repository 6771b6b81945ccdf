"""The protocol's gRPC messages: tensors in both of their forms, and parameters."""

from typing import Any

import pytest
from hypothesis import given
from tests.tensors.test_tensor_forms import same, tensors

from rheostat.tensors import Tensor, TensorError

pytest.importorskip("google.protobuf", reason="protobuf is not installed: pip install 'rheostat[grpc]'")
from rheostat.tensors.message_form import add_tensors, from_messages, from_parameters, set_parameters
from rheostat.tensors.messages import messages


@given(tensor=tensors())
def test_what_is_written_is_read_back(tensor: Tensor) -> None:
    request = messages().ModelInferRequest()
    add_tensors(request.inputs, request.raw_input_contents, (tensor,))
    read = messages().ModelInferRequest.FromString(request.SerializeToString())
    (again,) = from_messages(read.inputs, read.raw_input_contents)
    assert same(tensor, again)


def given_input(datatype: str, shape: list[int], raw: list[bytes] | None = None, **contents: Any) -> Any:
    request = messages().ModelInferRequest(raw_input_contents=raw or [])
    tensor = request.inputs.add(name="t", datatype=datatype, shape=shape)
    for field, values in contents.items():
        getattr(tensor.contents, field).extend(values)
    return request


@pytest.mark.parametrize(
    ("datatype", "field", "values"),
    [
        ("BOOL", "bool_contents", [True, False]),
        ("INT8", "int_contents", [-1, 2]),
        ("INT64", "int64_contents", [1 << 60, 2]),
        ("UINT16", "uint_contents", [1, 2]),
        ("UINT64", "uint64_contents", [1 << 63, 2]),
        ("FP32", "fp32_contents", [0.5, 2.0]),
        ("FP64", "fp64_contents", [0.1, 2.0]),
        ("BYTES", "bytes_contents", [b"a", "好".encode()]),
    ],
)
def test_contents_are_read_by_datatype(datatype: str, field: str, values: list[Any]) -> None:
    request = given_input(datatype, [2, 1], **{field: values})
    (tensor,) = from_messages(request.inputs, request.raw_input_contents)
    assert list(tensor.values) == [value.decode() if isinstance(value, bytes) else value for value in values]


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (("FP32", [3], None, {"fp32_contents": [1.0]}), "3 values"),
        (("FP32", [1], None, {"fp64_contents": [1.0]}), "0 in fp32_contents"),
        (("FP32", [1], [b"\0\0\0\0"], {"fp32_contents": [1.0]}), "raw contents"),
        (("FP32", [1], [b"\0\0\0\0", b""], {}), "2 raw contents"),
        (("FP32", [-1], [b"\0\0\0\0"], {}), "a shape"),
        (("FP16", [1], None, {}), "no form but raw"),
        (("BYTES", [1], None, {"bytes_contents": [b"\xff"]}), "not UTF-8"),
        (("FP99", [1], None, {}), "FP99"),
        (("FP32", [1 << 62] * 4, None, {"fp32_contents": [1.0]}), "values"),
    ],
)
def test_what_is_no_tensor_is_named(request_: tuple[Any, ...], told: str) -> None:
    datatype, shape, raw, contents = request_
    request = given_input(datatype, shape, raw, **contents)
    with pytest.raises(TensorError) as caught:
        from_messages(request.inputs, request.raw_input_contents)
    assert told in str(caught.value)


def test_parameters_keep_their_kind() -> None:
    values = {"a": True, "b": 5, "c": "text", "d": 0.5}
    request = messages().ModelInferRequest()
    set_parameters(request.parameters, values)
    assert from_parameters(request.parameters) == values
    request.parameters["e"].SetInParent()
    assert from_parameters(request.parameters)["e"] is None


@given(tensor=tensors().filter(lambda tensor: tensor.datatype != "FP16"))
def test_contents_that_are_written_are_read_back(tensor: Tensor) -> None:
    request = messages().ModelInferRequest()
    add_tensors(request.inputs, None, (tensor,))
    (again,) = from_messages(messages().ModelInferRequest.FromString(request.SerializeToString()).inputs, [])
    assert same(tensor, again)


@pytest.mark.parametrize(("datatype", "value"), [("INT8", 128), ("INT8", -129), ("INT16", 1 << 15), ("UINT8", 256)])
def test_a_number_beyond_its_datatype_is_no_tensor(datatype: str, value: int) -> None:
    field = "uint_contents" if datatype.startswith("U") else "int_contents"
    with pytest.raises(TensorError, match="whole numbers from"):
        from_messages(given_input(datatype, [1], **{field: [value]}).inputs, [])


@pytest.mark.parametrize(("datatype", "value"), [("INT32", 1 << 31), ("UINT8", -1), ("FP16", 1.0), ("BOOL", "yes")])
def test_a_value_that_a_message_cannot_hold_is_named(datatype: str, value: object) -> None:
    with pytest.raises(TensorError, match="'t'"):
        add_tensors(messages().ModelInferRequest().inputs, None, (Tensor("t", datatype, (1,), [value]),))


def test_empty_contents_beside_raw_ones_are_none() -> None:
    request = given_input("INT8", [1], raw=[b"\x07"])
    request.inputs[0].contents.SetInParent()
    assert request.inputs[0].HasField("contents")
    (read,) = from_messages(request.inputs, request.raw_input_contents)
    assert list(read.values) == [7]
