"""A small real language model for tests, opened by the `gguf` backend; skipped where it is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from bench import llama

from rheostat.backends.gguf import GgufModel
from rheostat.backends.gguf_answers import GgufAnswerer, GgufClassifier, GgufWriter
from rheostat.pool.backend import Piece, Reply
from rheostat.types import Prediction

FILE = llama.model_file()
if not llama.installed() or FILE is None:
    pytest.skip(llama.WANTED, allow_module_level=True)

LABELS = ("positive", "negative")
TEXTS = ("a great film", "dull and far too long", "Say hello in one sentence.", "Count to ten.")
STORY = "Tell me a long story about a fox."


def opened(**settings: Any) -> Any:
    return GgufModel(**{"file": str(FILE), "context": 512, "max_tokens": 12, **settings}).open("")


@pytest.fixture(scope="module")
def classifier() -> Iterator[GgufClassifier]:
    backend = opened(labels=LABELS)
    yield backend
    backend.close()


@pytest.fixture(scope="module")
def writer() -> Iterator[GgufWriter]:
    backend = opened()
    yield backend
    backend.close()


def said(reply: Reply) -> Prediction:
    assert isinstance(reply, Prediction), reply
    return reply


def one(backend: GgufAnswerer, row: Any) -> Prediction:
    return said(backend.predict([row])[0])


async def pieces(backend: GgufWriter, row: Any) -> list[Piece]:
    return [piece async for piece in backend.astream(row, 60.0)]


def generated(backend: GgufAnswerer, name: str = "tokens_predicted_total") -> int:
    """How many tokens the engine has computed for answers that have ended or were stopped."""
    page = backend._engine._server.handle_metrics()
    return next(int(float(line.split()[1])) for line in page.splitlines() if line.startswith(f"llamacpp:{name} "))
