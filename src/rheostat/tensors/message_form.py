"""Tensors and parameters in the protocol's gRPC messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rheostat.tensors.binary_form import from_bytes, text_of, to_bytes
from rheostat.tensors.tensor import RANGES, Tensor, TensorError, checked_datatype, checked_shape, count, shown

_CONTENTS = {
    "BOOL": "bool_contents", "BYTES": "bytes_contents", "FP32": "fp32_contents", "FP64": "fp64_contents",
    "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents", "INT64": "int64_contents",
    "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents", "UINT64": "uint64_contents",
}  # fmt: skip


def from_messages(given: Iterable[Any], raw: Sequence[bytes]) -> list[Tensor]:
    """Read tensors with their `contents`, or, when `raw` is not empty, with one piece of `raw` each.

    Raises:
        TensorError: one is none, two have one name, or there is another number of pieces than of tensors.
    """
    tensors = list(given)
    if raw and len(raw) != len(tensors):
        raise TensorError(f"there are {len(tensors)} tensors and {len(raw)} raw contents")
    read = [_read(each, raw[index] if raw else None) for index, each in enumerate(tensors)]
    if len({tensor.name for tensor in read}) != len(read):
        raise TensorError(f"two tensors have one name: {[tensor.name for tensor in read]}")
    return read


def _read(given: Any, raw: bytes | None) -> Tensor:
    name = given.name
    if not name:
        raise TensorError("expected the name of a tensor, got ''")
    datatype = checked_datatype(name, given.datatype)
    shape = checked_shape(name, list(given.shape))
    parameters = from_parameters(given.parameters)
    if raw is not None:
        if given.contents.ByteSize():  # MLServer sends empty ones along
            raise TensorError(f"{name!r} has contents and raw contents")
        return from_bytes(name, datatype, shape, raw)._replace(parameters=parameters)
    field = _field(name, datatype)
    values: list[Any] = list(getattr(given.contents, field))
    if len(values) != count(shape):
        raise TensorError(f"expected {shown(count(shape))} values of {name!r} in the shape {shown(list(shape))}, "
                          f"got {len(values)} in {field}")  # fmt: skip
    if datatype == "BYTES":
        values = [text_of(name, value) for value in values]
    elif datatype in RANGES and values:
        low, high = RANGES[datatype]  # int_contents are of 32 bits, whatever the datatype says
        if min(values) < low or max(values) > high:
            raise TensorError(f"expected whole numbers from {low} to {high} in {name!r}, got {shown(values)}")
    return Tensor(name, datatype, shape, values, parameters)


def _field(name: str, datatype: str) -> str:
    field = _CONTENTS.get(datatype)
    if field is None:
        raise TensorError(f"{name!r} of {datatype} has no form but raw contents")
    return field


def add_tensors(message: Any, raw: Any | None, tensors: Iterable[Tensor]) -> None:
    """Add tensors to a list of a message, and their bytes to its raw contents; without `raw` they carry their values as
    `contents`.

    Raises:
        TensorError: a value does not fit its datatype, or this has no form but raw contents.
    """
    for tensor in tensors:
        added = message.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        if raw is not None:
            raw.append(to_bytes(tensor))
            continue
        text = tensor.datatype == "BYTES"
        try:
            getattr(added.contents, _field(tensor.name, tensor.datatype)).extend(
                [value.encode() for value in tensor.values] if text else tensor.values
            )
        except (TypeError, ValueError) as error:
            raise TensorError(f"a value of {tensor.name!r} is no {tensor.datatype}: {error}") from None


def from_parameters(given: Any) -> dict[str, Any]:
    """Return a map of parameters as plain values; one that is not set is None."""
    read: dict[str, Any] = {}
    for name, parameter in given.items():
        choice = parameter.WhichOneof("parameter_choice")
        read[name] = getattr(parameter, choice) if choice else None
    return read


def set_parameters(message: Any, values: Mapping[str, str | bool | int | float]) -> None:
    """Set parameters of a message."""
    for name, value in values.items():
        parameter = message[name]
        if isinstance(value, bool):
            parameter.bool_param = value
        elif isinstance(value, int):
            parameter.int64_param = value
        elif isinstance(value, float):
            parameter.double_param = value
        else:
            parameter.string_param = value
