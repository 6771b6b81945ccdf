"""The large model: a small transformer that reads whole sentences, with a linear head trained here."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from rheostat.lab.smaller import quantize_file
from rheostat.pool.onnx_tokens import TextEncoder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_LENGTH = 128
_BLOCK = 32  # texts between two reports of progress


def quantise(source: Path, target: Path) -> Path:
    """Write the encoder with 8-bit weights: a quarter of the size and about a third of the time; once.

    The head is trained on what the written file says, so what this loses is in every figure.
    """
    return target if target.is_file() else quantize_file(source, target)


class Encoder:
    """Embeds texts exactly as the `onnx` backend does when it serves encoder and head: one text at a time."""

    def __init__(self, path: Path, tokenizer: Path) -> None:
        self._encoder = TextEncoder(path, tokenizer, MAX_LENGTH)

    def embed(self, texts: Sequence[str], done: Callable[[int], None]) -> NDArray[np.float32]:
        """Return (texts, width) embeddings of length 1, computed on all cores; `done` hears how many more are ready."""
        import numpy as np

        blocks = [texts[start : start + _BLOCK] for start in range(0, len(texts), _BLOCK)]
        parts = []
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for part in pool.map(self._block, blocks):
                parts.append(part)
                done(len(part))
        return np.concatenate(parts)

    def _block(self, texts: Sequence[str]) -> NDArray[np.float32]:
        import numpy as np

        return np.concatenate([self._encoder.embed(text) for text in texts])
