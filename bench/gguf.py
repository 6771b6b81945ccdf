"""`gguf` in this process beside llama.cpp's own HTTP server asked by `openai`, in one run; and how a small model classifies.

    python -m bench.gguf [serving] [quality]

CPU counts this process and the server's. Both sides have one thread, one slot and the same chats.
"""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from statistics import median
from typing import Any, NamedTuple, cast

import psutil

from bench import llama
from bench.labelled import read_set, why_absent
from rheostat.backends.gguf import GgufModel
from rheostat.backends.openai import OpenAIModel
from rheostat.errors import ModelError
from rheostat.pool.backend import Piece, RemoteBackend, StreamingBackend

PROMPT = "You are a helpful assistant."
TOKENS = 24
REQUESTS = 12
ROWS = 200
_NAMED = {"0": "negative", "1": "positive"}  # a language model has to be told what is meant
_TEXTS = ("Tell me about the sea.", "Why is the sky blue?", "How do I bake bread?", "What does a fox eat?")


class Cost(NamedTuple):
    """One request: CPU and wall milliseconds, and wall milliseconds until the first text."""

    cpu_ms: float
    wall_ms: float
    first_ms: float


async def serving() -> None:
    """Ask both sides in turns, and print each and their ratios."""
    file = str(llama.model_file())
    with llama.served(context=512) as (root, process):
        other = psutil.Process(process.pid)
        own: Any = GgufModel(file=file, context=512, max_tokens=TOKENS, prompt=PROMPT).open("")
        remote: Any = OpenAIModel(
            base_url=f"{root}/v1", model="smollm2", labels=("none",), max_tokens=TOKENS, prompt=PROMPT, logprobs=True,
            top_logprobs=2,
        ).open("")  # fmt: skip
        sides = {"gguf": (own, lambda: 0.0), "openai": (remote, lambda: sum(other.cpu_times()[:2]))}
        found: dict[str, list[Cost]] = {name: [] for name in sides}
        try:
            for number in range(REQUESTS + 2):
                for name, (backend, elsewhere) in sides.items():
                    cost = await _cost(backend, f"{_TEXTS[number % len(_TEXTS)]} ({number})", elsewhere)
                    if number >= 2:
                        found[name].append(cost)
        finally:
            await own.aclose()
            await remote.aclose()
    print(
        f"medians of {REQUESTS} requests of {TOKENS} tokens\n\n| side | CPU ms | CPU ms a token | wall ms | first text ms |"
    )
    print("|---|---|---|---|---|")
    rows = {name: Cost(*(median(each) for each in zip(*costs, strict=True))) for name, costs in found.items()}
    for name, cost in rows.items():
        print(f"| `{name}` | {cost.cpu_ms:.0f} | {cost.cpu_ms / TOKENS:.1f} | {cost.wall_ms:.0f} | {cost.first_ms:.0f} |")
    ratios = [one / two for one, two in zip(rows["gguf"], rows["openai"], strict=True)]
    print(f"| ratio | {ratios[0]:.2f} | {ratios[0]:.2f} | {ratios[1]:.2f} | {ratios[2]:.2f} |\n")


async def _cost(backend: RemoteBackend, text: str, elsewhere: Callable[[], float]) -> Cost:
    cpu, began, first = time.process_time() + elsewhere(), time.perf_counter(), 0.0
    stream = cast("AsyncGenerator[Piece]", cast("StreamingBackend", backend).astream(text, 120.0))
    async with aclosing(stream) as pieces:
        async for piece in pieces:
            first = first or time.perf_counter() - began if piece.text else first
    took = time.perf_counter() - began
    return Cost((time.process_time() + elsewhere() - cpu) * 1e3, took * 1e3, first * 1e3)


def quality() -> None:
    """Classify rows of SST-2 with a small model that was never trained for it, beside plain methods."""
    if (absent := why_absent("sst2")) is not None:
        print(absent)
        return
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    rows = read_set("sst2")
    train, test = rows["train"], rows["test"]
    labels = tuple(_NAMED.values())
    texts, truth = test.inputs[:ROWS], [_NAMED[label] for label in test.labels[:ROWS]]
    known = [_NAMED[label] for label in train.labels]
    most = Counter(known).most_common(1)[0][0]
    plain = make_pipeline(TfidfVectorizer(ngram_range=(1, 2), min_df=2), LogisticRegression(max_iter=1000))
    plain.fit(train.inputs, known)
    model = GgufModel(file=str(llama.model_file()), labels=labels, context=512).open("")
    began = time.process_time()
    replies = model.predict(texts)
    cpu_ms = (time.process_time() - began) * 1e3 / len(texts)
    model.close()
    said = ["" if isinstance(reply, ModelError) else reply.label for reply in replies]
    print(f"SST-2, the first {len(texts)} test rows, labels {', '.join(labels)}; SmolLM2: {cpu_ms:.0f} CPU ms a row\n")
    print("| model | accuracy | 95 % |\n|---|---|---|")
    for name, answers in {
        "majority": [most] * len(texts),
        "tf-idf": list(plain.predict(texts)),
        "SmolLM2-135M": said,
    }.items():
        share, low, high = accuracy(answers, truth)
        print(f"| {name} | {share:.3f} | {low:.3f} to {high:.3f} |")
    print(f"\nSmolLM2 says: {dict(Counter(said))}; truth: {dict(Counter(truth))}")


def accuracy(answers: Sequence[str], truth: Sequence[str]) -> tuple[float, float, float]:
    """Return the share of right answers with its 95 % interval (Wilson 1927)."""
    n = len(truth)
    share = sum(one == other for one, other in zip(answers, truth, strict=True)) / n
    z = 1.96
    middle, width = share + z * z / (2 * n), z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return share, (middle - width) / (1 + z * z / n), (middle + width) / (1 + z * z / n)


def main() -> None:
    if not llama.installed():
        raise SystemExit(f"the model is not installed: {llama.WANTED}")
    parts = sys.argv[1:] or ["serving", "quality"]
    if "serving" in parts:
        asyncio.run(serving())
    if "quality" in parts:
        quality()


if __name__ == "__main__":
    main()
