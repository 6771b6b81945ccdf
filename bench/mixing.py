"""Two language models of one vocabulary mixed token by token, beside each alone: time a token, how often the second one was
asked, and how likely the text is to the second one.

    python -m bench.mixing --small SMALL.gguf --strong LARGER.gguf [--requests 6] [--tokens 48]

Both are opened in this process, one thread each.
"""

from __future__ import annotations

import json
import math
import time
from statistics import fmean
from typing import Any

from bench.two_models import PROMPTS, Files, arguments, row, table
from rheostat.backends.mixture import MixtureModel
from rheostat.errors import ModelError

ARMS: dict[str, dict[str, Any]] = {
    "the first alone": {"weight": 0.0},
    "the second alone": {"weight": 1.0},
    "linear, half": {"weight": 0.5},
    "product, half": {"weight": 0.5, "form": "product"},
    "by progress, over 24": {"weight": 1.0, "by": "progress", "over": 24},
    "by margin, sure at .9": {"weight": 1.0, "by": "margin", "sure": 0.9},
    "by margin, sure at .5": {"weight": 1.0, "by": "margin", "sure": 0.5},
}


def measured(files: Files, requests: int, tokens: int) -> None:
    """Ask every arm in turns, and print the table."""
    made: dict[str, Any] = {"first": str(files.small), "second": str(files.strong), "context": 512, "max_tokens": tokens}
    judge = MixtureModel(weight=1.0, **made).open("")
    rows = []
    for name, more in ARMS.items():
        backend = MixtureModel(**made, **more).open("")
        backend.predict(["Say hello."])
        backend.computed = [0, 0]
        texts, written, began = [], 0, time.perf_counter()
        for question in PROMPTS[:requests]:
            (reply,) = backend.predict([row(question, tokens)])
            if isinstance(reply, ModelError):
                raise reply
            texts.append((question, reply.label))
            written += json.loads(reply.output)["usage"]["completion_tokens"]
        took = time.perf_counter() - began
        asked = backend.computed[1] / max(1, written)
        backend.close()
        likely = [chance for question, text in texts for chance in _chances(judge, question, text)]
        rows.append((name, f"{1e3 * took / written:.0f}", f"{asked:.0%}", f"{math.exp(-fmean(likely)):.2f}"))
    judge.close()
    print(f"first: {files.small.name}, second: {files.strong.name}; {requests} answers of up to {tokens} tokens\n")
    table(("arm", "ms a token", "tokens the second was asked for", "perplexity to the second"), rows)


def _chances(judge: Any, question: str, text: str) -> list[float]:
    """Return the natural logarithms of the second model's probabilities of a text's tokens, as its answer."""
    engine = judge._engines[1]
    chat = [{"role": "user", "content": question}]
    prompt = engine.tokens(chat, "")
    tokens = engine.tokens(chat, text)[len(prompt) :]
    grammar = "root ::= " + " ".join(f"<[{token}]>" for token in tokens)
    found: list[float] = []

    def hear(said: Any) -> None:
        chances = (said["choices"][0].get("logprobs") if said.get("choices") else None) or {}
        found.extend(each["logprob"] for each in chances.get("content", ()))

    body = {"prompt": list(prompt), "max_tokens": len(tokens), "logprobs": 1, "temperature": 0, "grammar": grammar}
    engine.begin(lambda turn: turn.complete(body, hear)).future.result()
    return found


def main() -> None:
    """Run it."""
    files, given = arguments("Mixing two models token by token.", 6, 48)
    measured(files, given.requests, given.tokens)


if __name__ == "__main__":
    main()
