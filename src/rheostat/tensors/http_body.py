"""A body of the protocol's HTTP form: JSON, with the bytes of binary tensors behind it.

The header `Inference-Header-Content-Length` says where the JSON ends; a tensor's `binary_data_size` how many bytes are its
own, in the order of the tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rheostat.tensors.binary_form import from_bytes, to_bytes
from rheostat.tensors.json_form import from_json, head, to_json
from rheostat.tensors.tensor import Tensor, TensorError, shown

HEADER = "Inference-Header-Content-Length"
_SIZE = "binary_data_size"


def split(body: bytes, length: str | None) -> tuple[bytes, memoryview]:
    """Return the JSON and what comes behind it; `length` is the header's value, None when it was not there.

    Raises:
        TensorError: the header is no length, or one that the body does not have.
    """
    if length is None:
        return body, memoryview(b"")
    text = length.strip()
    if not (text.isascii() and text.isdigit() and len(text) < 19 and int(text) <= len(body)):
        raise TensorError(f"{HEADER} must be the length of the JSON in the {len(body)} bytes of the body, got {shown(text)}")
    return body[: int(text)], memoryview(body)[int(text) :]


def read_tensors(given: Any, rest: memoryview) -> list[Tensor]:
    """Read a list of tensors, those in JSON and those in `rest`.

    Raises:
        TensorError: one is none, two have one name, or the sizes are not those of `rest`.
    """
    if not isinstance(given, list):
        raise TensorError(f"expected a list of tensors, got {shown(given)}")
    tensors: list[Tensor] = []
    at = 0
    for each in given:
        name, datatype, shape, parameters = head(each)
        size = parameters.get(_SIZE)
        if size is None:
            tensors.append(from_json(each))
            continue
        if type(size) is not int or not 0 <= size <= len(rest) - at:
            raise TensorError(f"{_SIZE} of {name!r} is {shown(size)}, and {len(rest) - at} bytes are left")
        if "data" in each:
            raise TensorError(f"{name!r} has both data and a {_SIZE}")
        tensors.append(from_bytes(name, datatype, shape, rest[at : at + size])._replace(parameters=parameters))
        at += size
    if at != len(rest):
        raise TensorError(f"{len(rest) - at} bytes behind the JSON belong to no tensor")
    if len({tensor.name for tensor in tensors}) != len(tensors):
        raise TensorError(f"two tensors have one name: {[tensor.name for tensor in tensors]}")
    return tensors


def written(tensors: Sequence[Tensor], binary: Sequence[bool]) -> tuple[list[dict[str, Any]], list[bytes]]:
    """Return the tensors as JSON objects, and the bytes of those that `binary` says, in order.

    Raises:
        TensorError: a number does not fit its datatype.
    """
    objects: list[dict[str, Any]] = []
    parts: list[bytes] = []
    for tensor, as_bytes in zip(tensors, binary, strict=True):
        if not as_bytes:
            objects.append(to_json(tensor))
            continue
        raw = to_bytes(tensor)
        parts.append(raw)
        objects.append(
            {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape), "parameters": {_SIZE: len(raw)}}
        )
    return objects, parts
