"""Turns within one answer: cues learned on some questions, and on others how much the small model writes, how long it takes
beside the strong model alone, and how likely what was written is to the strong model.

    python -m bench.relay --strong LARGER.gguf [--plain] [--requests 6] [--tokens 160] [--share 0.4]

Both models are llama.cpp servers of one thread on this machine. The cues and their plot go to bench-out/.
"""

from __future__ import annotations

import asyncio
import json
import math
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

import msgspec

from bench.two_models import PROMPTS, Files, Timed, arguments, both, routed, row, table, timed
from rheostat.jobs.cues import measure_cues
from rheostat.lab.cues import Chosen, choose, plot

OUT = Path(__file__).parents[1] / "bench-out"
WRITES = "{backend: relay, strong: strong, small: small, cues: cues.json}"
NOTHING = "{backend: progressive, fast: small, strong: strong}"  # while there are no cues


async def learned(small: str, strong: str, questions: Sequence[str], tokens: int, share: float) -> Chosen:
    """Learn the cues."""
    async with routed(small, strong, NOTHING) as router:
        found = await measure_cues(router.loaded, questions, strong="strong", small="small", tokens=tokens)
    return choose(found, share, "sentence", ("strong", "1"), ("small", "1"))


async def measured(small: str, strong: str, cues: bytes, questions: Sequence[str], tokens: int) -> dict[str, list[Timed]]:
    """Ask the arms in turns."""
    found: dict[str, list[Timed]] = {"strong alone": [], "relay": [], "small alone": []}
    async with routed(small, strong, WRITES, cues) as router:
        for number, question in enumerate(("What is rain?", *questions)):
            for place, (name, route) in enumerate(zip(found, ("strong", "both", "small"), strict=True)):
                said = await timed(router, route, row(f"({number}.{place}) {question}", tokens))
                if number:
                    found[name].append(said)
    return found


def chances(root: str, question: str, text: str) -> list[float]:
    """Return the natural logarithms of the strong model's probabilities of a text's tokens, as its answer to a question."""
    prompt = _post(f"{root}/apply-template", {"messages": [{"role": "user", "content": question}]})["prompt"]
    tokens = _post(f"{root}/tokenize", {"content": text, "add_special": False})["tokens"]
    grammar = "root ::= " + " ".join(f"<[{token}]>" for token in tokens)
    asked = {"prompt": prompt, "n_predict": len(tokens), "n_probs": 1, "temperature": 0, "grammar": grammar}
    return [each["logprob"] for each in _post(f"{root}/completion", asked)["completion_probabilities"]]


def _post(url: str, body: Any) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)


def report(files: Files, chosen: Chosen, found: dict[str, list[Timed]], root: str, questions: Sequence[str]) -> None:
    """Print what was learned and the table."""
    print(f"{files.told()}\n\nlearned from {chosen.passages} segments: {', '.join(sorted(chosen.cues.chosen)) or 'no cue'}")
    print(f"on the half that did not choose: {chosen.share:.0%} of the segments begin with a chosen cue; the small model's")
    print(f"mean margin is {chosen.margin:.3f} there and {chosen.margin_else:.3f} elsewhere; it writes what the strong one")
    print(f"writes in {chosen.same:.0%} of them and in {chosen.same_else:.0%} elsewhere\n")
    rows = []
    alone = fmean(said.total_s for said in found["strong alone"])
    for name, said in found.items():
        spans = [span for each in said for span in each.spans]
        small = sum(span.tokens for span in spans if span.model == "small")
        share = small / sum(span.tokens for span in spans) if spans else float(name == "small alone")
        turns = fmean(len(each.spans) for each in said) if spans else 1
        likely = [chance for q, each in zip(questions, said, strict=True) for chance in chances(root, q, each.text)]
        total = fmean(each.total_s for each in said)
        written = fmean(len(each.text) for each in said)
        rows.append((
            name, f"{share:.0%}", f"{turns:.1f}", f"{total:.2f}", f"{total / alone:.2f}", f"{1e3 * total / written:.1f}",
            f"{1e3 * median(each.first_s for each in said):.0f}", f"{math.exp(-fmean(likely)):.2f}",
        ))  # fmt: skip
    head = (
        "arm",
        "tokens by small",
        "spans",
        "s an answer",
        "x strong",
        "ms a character",
        "first text ms",
        "perplexity to strong",
    )
    table(head, rows)
    print("perplexity: that of the text to the strong model, as its own answer")


def main() -> None:
    """Run it."""
    files, given = arguments("Turns within one answer.", 6, 160, share=0.4)
    train, test = PROMPTS[: -given.requests], PROMPTS[-given.requests :]
    OUT.mkdir(exist_ok=True)
    with both(files, 1024) as (small, strong):
        chosen = asyncio.run(learned(small, strong, train, given.tokens, given.share))
        cues = msgspec.json.encode(chosen.cues)
        (OUT / "cues.json").write_bytes(cues)
        plot(chosen.cues, OUT / "cues.png")
        if not chosen.cues.chosen:
            raise SystemExit("no cue was chosen: behind none was the small model surer than on average")
        found = asyncio.run(measured(small, strong, cues, test, given.tokens))
        report(files, chosen, found, strong, test)


if __name__ == "__main__":
    main()
