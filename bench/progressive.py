"""A progressive answer beside its two models alone: time to the first text, to the takeover, and in all.

    python -m bench.progressive --strong LARGER.gguf [--plain] [--requests 12] [--tokens 96]

Both models are llama.cpp servers of one thread on this machine, whose two processors they share.
"""

from __future__ import annotations

import asyncio
from statistics import median

from bench.two_models import PROMPTS, Files, Timed, arguments, both, routed, row, table, timed

ARMS = {
    "progressive": "{backend: progressive, fast: small, strong: strong}",
    "progressive, `ahead: false`": "{backend: progressive, fast: small, strong: strong, ahead: false}",
}


async def measured(small: str, strong: str, requests: int, tokens: int) -> dict[str, list[Timed]]:
    """Ask every arm every prompt, in turns; each sees it for the first time."""
    found: dict[str, list[Timed]] = {"fast alone": [], "strong alone": [], **{name: [] for name in ARMS}}
    async with (
        routed(small, strong, ARMS["progressive"]) as one,
        routed(small, strong, ARMS["progressive, `ahead: false`"]) as other,
    ):
        routes = dict(zip(found, ((one, "small"), (one, "strong"), (one, "both"), (other, "both")), strict=True))
        for number in range(requests + 1):
            for place, (name, (router, route)) in enumerate(routes.items()):
                prompt = (
                    f"({number}.{place}) {PROMPTS[number % len(PROMPTS)]}"  # what a server keeps of another arm is no help
                )
                said = await timed(router, route, row(prompt, tokens))
                if number:
                    found[name].append(said)
    return found


def report(files: Files, found: dict[str, list[Timed]], tokens: int) -> None:
    """Print the table."""
    print(f"{files.told()}; medians of {len(found['fast alone'])} answers of up to {tokens} tokens\n")
    quick = median(said.first_s for said in found["fast alone"])
    slow = median(said.total_s for said in found["strong alone"])
    rows = []
    for name, said in found.items():
        first, total = median(each.first_s for each in said), median(each.total_s for each in said)
        strong = [span for each in said for span in each.spans if span.why == "takes over"]
        fast = [span for each in said for span in each.spans if span.why == "begins"]
        ended = sum(each.spans[-1].why == "takes over" and not each.spans[-1].failure for each in said if each.spans)
        by_strong = sum(span.tokens for span in strong) / max(1, sum(span.tokens for span in (*fast, *strong)))
        more = (f"{by_strong:.0%}", f"{ended} of {len(said)}") if fast else ("", "")
        rows.append((name, f"{1e3 * first:.0f}", f"{first / quick:.2f}", f"{total:.2f}", f"{total / slow:.2f}", *more))
    table(("arm", "first text ms", "x fast", "total s", "x strong", "tokens by strong", "ended by strong"), rows)


def main() -> None:
    """Run it."""
    files, given = arguments("A progressive answer beside its models alone.", 12, 96)
    with both(files) as (small, strong):
        report(files, asyncio.run(measured(small, strong, given.requests, given.tokens)), given.tokens)


if __name__ == "__main__":
    main()
