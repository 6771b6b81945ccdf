"""The beginning of a GGUF file: what is read of it, and that no broken one gets further."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rheostat.backends.gguf_file import read_gguf

FACTS: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.block_count": 3,
    "llama.context_length": 512,
    "llama.embedding_length": 64,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.tokens": ["a", "b", "中"],
    "tokenizer.chat_template": "{{ messages }}",
    "general.weight": 0.5,
}
TENSORS = (("token_embd.weight", (32, 3), 8), ("output_norm.weight", (32,), 0))


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(said: Any) -> bytes:
    if isinstance(said, str):
        return struct.pack("<I", 8) + text(said)
    if isinstance(said, list):
        strings = all(isinstance(each, str) for each in said)
        items = b"".join(text(each) if strings else struct.pack("<I", each) for each in said)
        return struct.pack("<IIQ", 9, 8 if strings else 4, len(said)) + items
    return struct.pack("<If", 6, said) if isinstance(said, float) else struct.pack("<II", 4, said)


def gguf(facts: dict[str, Any], tensors: Any = TENSORS, version: int = 3, missing: int = 0) -> bytes:
    """A file of two tensors: 102 bytes of 8-bit blocks, and from byte 128 on 32 float numbers."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(facts))
    head += b"".join(text(key) + value(said) for key, said in facts.items())
    for place, (name, shape, kind) in enumerate(tensors):
        head += text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape) + struct.pack("<IQ", kind, 128 * place)
    whole = head + bytes(-len(head) % 32) + bytes(256)
    return whole[: len(whole) - missing]


def read(tmp_path: Path, content: bytes) -> Any:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    return read_gguf(path)


def test_what_the_file_says(tmp_path: Path) -> None:
    facts = read(tmp_path, gguf(FACTS))
    # 3 layers of 2 shared heads, 16 numbers each for keys and for values, of 2 bytes
    assert (facts.architecture, facts.context, facts.token_bytes, facts.has_template) == ("llama", 512, 3 * 2 * 32 * 2, True)
    assert facts.size == len(gguf(FACTS))
    own = {**FACTS, "llama.attention.head_count_kv": [1, 0, 3], "llama.attention.key_length": 8}
    assert read(tmp_path, gguf({**own, "tokenizer.chat_template": ""}))[3:5] == (4 * (8 + 16) * 2, False)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "begin with the letters GGUF"),
        (b"PK\x03\x04 a zip", "begin with the letters GGUF"),
        (b"GGUF", "ends in the middle"),
        (gguf(FACTS, version=1), "version 1"),
        (gguf(FACTS, missing=1), "not copied or downloaded completely"),
        (gguf(FACTS, ()), "0 tensors"),
        (gguf(FACTS, (("w", (32, 3), 99),)), "unknown type 99"),
        (gguf(FACTS, (("w", (31, 3), 8),)), r"cannot have the shape \[31, 3\]"),
        (gguf(FACTS, (("w", (32, 0), 8),)), r"cannot have the shape \[32, 0\]"),
        (gguf(FACTS, (("w", (2,) * 5, 0),)), "5 dimensions"),
        (gguf({**FACTS, "general.alignment": 33}), "aligned to 33"),
        (gguf({**FACTS, "general.architecture": ""}), "which architecture"),
        (gguf({"general.architecture": "clip", "general.type": "mmproj"}), "no language model, but mmproj"),
        (gguf({**FACTS, "llama.block_count": "many"}), "`llama.block_count` is many"),
    ],
)
def test_what_is_refused(tmp_path: Path, content: bytes, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        read(tmp_path, content)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="No such file"):
        read_gguf(tmp_path / "none.gguf")


def test_every_shorter_file_is_refused(tmp_path: Path) -> None:
    whole = gguf(FACTS)
    for length in range(len(whole)):
        with pytest.raises(ValueError, match=r"it "):
            read(tmp_path, whole[:length])


@settings(deadline=None, max_examples=300)
@given(changes=st.lists(st.tuples(st.integers(0, 700), st.integers(0, 255)), min_size=1, max_size=8))
def test_whatever_stands_in_it_the_reader_ends(tmp_path_factory: pytest.TempPathFactory, changes: list[Any]) -> None:
    content = bytearray(gguf(FACTS))
    for place, byte in changes:
        content[place % len(content)] = byte
    try:
        facts = read(tmp_path_factory.getbasetemp(), bytes(content))
    except ValueError:
        return
    assert facts.token_bytes >= 0
    assert facts.context >= 0
