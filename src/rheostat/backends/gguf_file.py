"""The beginning of a GGUF file, read before native code gets it: a broken file must not end the process."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

_NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_KEPT = 64  # numbers of an array that are kept; longer ones are those of a vocabulary
_MANY = 1 << 24
_VOCABULARY = "its tokens"  # no key of a file has a space
_ENDS = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
_BLOCKS = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 36), 10: (256, 84),
    11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292), 16: (256, 66), 17: (256, 74),
    18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82), 23: (256, 136), 24: (1, 1), 25: (1, 2),
    26: (1, 4), 27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2), 34: (256, 54), 35: (256, 66), 39: (32, 17),
}  # fmt: skip
"""Values and bytes of one block, by the number of a tensor's type."""


class GgufFacts(NamedTuple):
    """What the file says of its model. `context` is what it was trained for in tokens, 0 when it does not say so;
    `token_bytes` is what one token of context takes in the cache of keys and values, 0 when that cannot be known;
    `vocabulary` is a hash of its tokens in their order, `ends` are the tokens that end an answer."""

    architecture: str
    size: int
    context: int
    token_bytes: int
    has_template: bool
    vocabulary: str = ""
    ends: tuple[int, ...] = ()


class _Reader:
    """Reads values one after another, and nothing behind the end of the file."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.at = 0

    def number(self, shape: str) -> Any:
        self.within(struct.calcsize(shape))
        (value,) = struct.unpack_from(shape, self.data, self.at - struct.calcsize(shape))
        return value

    def text(self) -> str:
        length = self.number("<Q")
        self.within(length)
        return self.data[self.at - length : self.at].decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            return self.array()
        if kind not in _NUMBERS:
            raise ValueError(f"it has a value of the unknown type {kind}")
        return self.number(_NUMBERS[kind])

    def array(self) -> list[Any]:
        kind, count = self.number("<I"), self.number("<Q")
        if kind in _NUMBERS:
            if count <= _KEPT:
                return [self.number(_NUMBERS[kind]) for _ in range(count)]
            self.within(count * struct.calcsize(_NUMBERS[kind]))
        elif kind == _STRING:
            for _ in range(count):
                self.within(self.number("<Q"))
        else:
            raise ValueError(f"it has a list of the type {kind}")
        return []

    def within(self, count: int) -> None:
        """Step over `count` bytes."""
        self.at += count
        if self.at > len(self.data):
            raise ValueError("it ends in the middle of its description: it was not copied or downloaded completely")


def read_gguf(path: Path) -> GgufFacts:
    """Read what the file says of itself, and hold its size to that.

    Raises:
        ValueError: it cannot be read, is no GGUF file, or is not complete; the message says which.
    """
    try:
        with open(path, "rb") as file:
            if file.read(4) != b"GGUF":
                raise ValueError("it is no GGUF file: those begin with the letters GGUF")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _facts(_Reader(data))
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror or error}") from None


def _facts(reader: _Reader) -> GgufFacts:
    reader.at = 4
    version, tensors, pairs = reader.number("<I"), reader.number("<Q"), reader.number("<Q")
    if version not in (2, 3):
        raise ValueError(f"it is of GGUF version {version}; 2 and 3 can be read")
    if not 0 < tensors < _MANY or not 0 < pairs < _MANY:
        raise ValueError(f"it tells of {tensors} tensors and {pairs} values, which no model has")
    said: dict[str, Any] = {}
    for _ in range(pairs):
        key = reader.text()
        if key in said:
            raise ValueError(f"it says `{key}` twice")
        kind, start = reader.number("<I"), reader.at
        said[key] = reader.value(kind)
        if key == "tokenizer.ggml.tokens":
            said[_VOCABULARY] = xxhash.xxh3_128_hexdigest(memoryview(reader.data)[start : reader.at])
    _complete(reader, tensors, said)
    return _told(said, len(reader.data))


def _complete(reader: _Reader, tensors: int, said: Mapping[str, Any]) -> None:
    alignment = said.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 8 or alignment & (alignment - 1):
        raise ValueError(f"it says that its tensors are aligned to {alignment}")
    end = 0
    for _ in range(tensors):
        name, rank = reader.text(), reader.number("<I")
        if not 1 <= rank <= 4:
            raise ValueError(f"its tensor {name[:80]!r} has {rank} dimensions")
        shape = [reader.number("<Q") for _ in range(rank)]
        kind, offset = reader.number("<I"), reader.number("<Q")
        if kind not in _BLOCKS:
            raise ValueError(f"its tensor {name[:80]!r} is of the unknown type {kind}: is llama.cpp's format newer?")
        values, size = _BLOCKS[kind]
        if not all(0 < each < 1 << 40 for each in shape) or shape[0] % values or offset % alignment:
            raise ValueError(f"its tensor {name[:80]!r} cannot have the shape {shape}")
        end = max(end, offset + prod(shape) // values * size)
    start = -(-reader.at // alignment) * alignment
    if start + end > len(reader.data):
        told = f"it has {len(reader.data):,} bytes where it tells of {start + end:,}"
        raise ValueError(f"{told}: it was not copied or downloaded completely")


def _told(said: Mapping[str, Any], size: int) -> GgufFacts:
    architecture = said.get("general.architecture")
    if not isinstance(architecture, str) or not architecture:
        raise ValueError("it does not say which architecture its model has")
    if f"{architecture}.block_count" not in said or "tokenizer.ggml.model" not in said:
        raise ValueError(f"it holds no language model, but {said.get('general.type', 'something else')!s:.80}")

    def count(key: str, default: int = 0) -> int:
        value = said.get(f"{architecture}.{key}", default)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 31:
            raise ValueError(f"it says that `{architecture}.{key}` is {value!s:.80}")
        return value

    heads = said.get(f"{architecture}.attention.head_count")
    width = count("embedding_length") // heads if isinstance(heads, int) and heads > 0 else 0
    keys, layers = count("attention.key_length", width) + count("attention.value_length", width), count("block_count")
    shared = said.get(f"{architecture}.attention.head_count_kv", heads)
    pairs = sum(shared) if isinstance(shared, list) else shared * layers if isinstance(shared, int) else 0
    template = bool(said.get("tokenizer.chat_template"))
    ends = tuple(said[key] for key in _ENDS if isinstance(said.get(key), int))
    vocabulary = said.get(_VOCABULARY, "")
    return GgufFacts(architecture, size, count("context_length"), 2 * keys * pairs, template, vocabulary, ends)
