"""Texts turned into tokens for a transformer encoder, and its answer into one vector a text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rheostat.errors import ConfigError, Problem
from rheostat.pool.onnx_session import open_session
from rheostat.pool.rows import text_in

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class TokenInput:
    """Token ids, mask and types for a transformer encoder, padded to the longest text of the batch."""

    probes: tuple[Any, ...] | None = None

    def __init__(self, tokenizer: Any, names: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        self._names = tuple(names)
        padding = tokenizer.padding
        self._pad = int(padding["pad_id"]) if padding else int(tokenizer.token_to_id("[PAD]") or 0)
        tokenizer.no_padding()

    def prepare(self, row: Any) -> Any:
        return self._tokenizer.encode(text_in(row))

    def size(self, prepared: Any) -> int:
        return len(prepared.ids)

    def feed(self, prepared: Sequence[Any]) -> dict[str, Any]:
        import numpy as np

        shape = (len(prepared), max(1, *(len(each.ids) for each in prepared), 1))
        tensors = {name: np.zeros(shape, dtype=np.int64) for name in self._names}
        if "input_ids" in tensors:
            tensors["input_ids"].fill(self._pad)
        columns = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
        for line, each in enumerate(prepared):
            for name, tensor in tensors.items():
                values = getattr(each, columns[name])
                tensor[line, : len(values)] = values
        return tensors


def token_input(path: Path, session: Any, max_length: int) -> TokenInput:
    """Read a `tokenizer.json`.

    Raises:
        ConfigError: it cannot be read, or the model has inputs a tokenizer cannot give.
    """
    known = {"input_ids", "attention_mask", "token_type_ids"}
    names = [each.name for each in session.get_inputs()]
    if not known.issuperset(names):
        raise ConfigError([Problem("tokenizer", None, f"the model takes {names}; a tokenizer gives {sorted(known)}")])
    return TokenInput(read_tokenizer(path, max_length), names)


def read_tokenizer(path: Path, max_length: int) -> Any:
    """Return the `tokenizers.Tokenizer` of a `tokenizer.json`; it cuts texts after `max_length` tokens.

    Raises:
        ConfigError: it cannot be read.
    """
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises bare Exception
        raise ConfigError([Problem("tokenizer", None, f"{path.name} is no tokenizer.json: {error}")]) from error
    tokenizer.enable_truncation(max_length)
    return tokenizer


def mean_pool(hidden: NDArray[Any], mask: NDArray[Any] | None) -> NDArray[np.float32]:
    """Return (n, width) sentence embeddings of length 1 from (n, tokens, width) token vectors, padding left out.

    A matrix that is pooled already is only brought to length 1. Source: Reimers & Gurevych, Sentence-BERT (2019).
    """
    import numpy as np

    pooled = np.asarray(hidden, dtype=np.float32)
    if pooled.ndim == 3:
        weights = np.ones(pooled.shape[:2], np.float32) if mask is None else np.asarray(mask, np.float32)
        total = np.maximum(weights.sum(axis=1, keepdims=True), 1e-9)
        pooled = np.einsum("nth,nt->nh", pooled, weights) / total
    unit: NDArray[np.float32] = pooled / np.maximum(np.linalg.norm(pooled, axis=1, keepdims=True), 1e-12)
    return unit


def token_vectors(session: Any) -> str:
    """Return the name of the output with a vector per token, else of the first output."""
    outputs = session.get_outputs()
    ranked = [each.name for each in outputs if len(each.shape) == 3] or [outputs[0].name]
    return str(ranked[0])


class TextEncoder:
    """A sentence encoder, run for one text at a time.

    An 8-bit encoder scales its activations by what is in the batch, so a text in a batch gets slightly other numbers
    than alone; requests come alone.

    Args:
        path: the ONNX file.
        tokenizer: its tokenizer.json.
        max_tokens: texts are cut after so many tokens.

    Raises:
        ConfigError: a file is missing or none of its kind; the message names it.
    """

    def __init__(self, path: Path, tokenizer: Path, max_tokens: int) -> None:
        self._session = open_session(path, 1, "encoder")
        self._source = token_input(tokenizer, self._session, max_tokens)
        self._output = token_vectors(self._session)

    def tokens(self, text: str) -> int:
        """Return how many tokens of a text are read."""
        return self._source.size(self._source.prepare(text))

    def embed(self, text: str) -> NDArray[np.float32]:
        """Return the embedding of length 1, shape (1, width)."""
        feed = self._source.feed([self._source.prepare(text)])
        (hidden,) = self._session.run([self._output], feed)
        return mean_pool(hidden, feed.get("attention_mask"))
