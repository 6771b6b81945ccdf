"""Safetensors files written by hand, so that no library stands between the bytes and the test."""

import json
from pathlib import Path

from rheostat.weights import Tensor


def raw(path: Path, tensors: dict[str, tuple[str, list[int], bytes]], metadata: dict[str, str] | None = None) -> Path:
    header: dict[str, object] = {"__metadata__": metadata} if metadata else {}
    at, body = 0, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at, body = at + len(data), body + data
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)
    return path


def bytes_of(tensor: Tensor) -> bytes:
    return Path(tensor.path).read_bytes()[tensor.offset : tensor.offset + tensor.size]
