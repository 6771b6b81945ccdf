"""A second real language model with the same vocabulary: the file of the installed one without its last layers."""

from __future__ import annotations

import mmap
import struct
from math import prod
from pathlib import Path

from rheostat.backends.gguf_file import _BLOCKS, _Reader


def shallow(source: Path, target: Path, layers: int) -> None:
    """Write `source` to `target` with its first `layers` layers only. It answers nonsense, fluently."""
    with open(source, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        reader = _Reader(data)
        reader.at = 4
        version, tensors, pairs = reader.number("<I"), reader.number("<Q"), reader.number("<Q")
        values = b""
        for _ in range(pairs):
            start = reader.at
            key = reader.text()
            kind = reader.number("<I")
            reader.value(kind)
            said = data[start : reader.at]
            values += said[:-4] + struct.pack("<I", layers) if key.endswith(".block_count") else said
        kept: list[tuple[bytes, bytes]] = []
        infos = []
        for _ in range(tensors):
            start = reader.at
            name, rank = reader.text(), reader.number("<I")
            shape = [reader.number("<Q") for _ in range(rank)]
            kind, offset = reader.number("<I"), reader.number("<Q")
            infos.append((data[start : reader.at - 8], name, shape, kind, offset))
        base = -(-reader.at // 32) * 32
        for head, name, shape, kind, offset in infos:
            if name.startswith("blk.") and int(name.split(".")[1]) >= layers:
                continue
            count, size = _BLOCKS[kind]
            kept.append((head, data[base + offset : base + offset + prod(shape) // count * size]))
    offset, heads, bodies = 0, b"", []
    for head, body in kept:
        heads += head + struct.pack("<Q", offset)
        bodies.append(body + bytes(-len(body) % 32))
        offset += len(bodies[-1])
    front = b"GGUF" + struct.pack("<IQQ", version, len(kept), pairs) + values + heads
    target.write_bytes(front + bytes(-len(front) % 32) + b"".join(bodies))
