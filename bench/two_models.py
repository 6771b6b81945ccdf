"""A small and a larger language model behind two llama.cpp servers, and a router over both: what several benches ask."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple

from msgspec import Raw

from bench import llama
from rheostat.errors import RheostatError
from rheostat.router import Router
from rheostat.types import Chat
from rheostat.types.span import Span

PLAIN = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
)
"""A chat template for a base model, which brings none."""
_TOPICS = (
    "a hash table", "rain", "the moon", "bread", "a bicycle", "sleep", "a river", "inflation", "a volcano", "honey", "glass",
    "a prime number", "a vaccine", "an earthquake", "the wind", "a battery", "salt", "a bridge", "a computer", "a tree",
    "music", "a lens", "the heart", "a bank",
)  # fmt: skip
_FORMS = ("Explain in some sentences what {} is and why it matters.", "Name three facts about {} and explain each of them.")
PROMPTS = tuple(form.format(topic) for topic in _TOPICS for form in _FORMS)
"""Questions; those of one topic stand side by side."""


class Files(NamedTuple):
    """The two models' files."""

    small: Path
    strong: Path
    plain: bool  # whether the strong one needs a chat template

    def told(self) -> str:
        return f"small: {self.small.name}; strong: {self.strong.name}"


class Timed(NamedTuple):
    """One streamed answer: seconds to the first text and in all, the text, and who wrote it."""

    first_s: float
    total_s: float
    text: str
    spans: tuple[Span, ...]
    finish: str


def arguments(about: str, requests: int, tokens: int, **more: float) -> tuple[Files, argparse.Namespace]:
    """Read the command line; `more` are numbers by name, with what they are unless given."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--strong", required=True, type=Path, help="the GGUF file of the larger model")
    parser.add_argument("--small", type=Path, default=llama.model_file(), help="that of the small one (SmolLM2-135M)")
    parser.add_argument("--plain", action="store_true", help="the larger one is a base model without a chat template")
    parser.add_argument("--requests", type=int, default=requests)
    parser.add_argument("--tokens", type=int, default=tokens)
    for name, value in more.items():
        parser.add_argument(f"--{name}", type=float, default=value)
    given = parser.parse_args()
    if given.small is None or not llama.installed():
        raise SystemExit(f"the small model is not installed: {llama.WANTED}")
    return Files(given.small, given.strong, given.plain), given


@contextmanager
def both(files: Files, context: int = 1024) -> Iterator[tuple[str, str]]:
    """Serve the small and the larger model; gives their root URLs."""
    with (
        llama.served(context, file=files.small) as (small, _),
        llama.served(context, file=files.strong, template=PLAIN if files.plain else "") as (strong, _),
    ):
        yield small, strong


@asynccontextmanager
async def routed(small: str, strong: str, joint: str, cues: bytes = b"") -> AsyncIterator[Router]:
    """Open a router with the routes `small`, `strong` and `both`, the last for the model that `joint` describes."""
    more = "continues: prefill, stream: {first: 120s, gap: 120s}, timeout: 600s"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "cues.json").write_bytes(cues)
        path = Path(folder, "rheostat.yaml")
        path.write_text(
            "task: chat\nmodels:\n"
            f"  small: {{backend: chat, base_url: '{small}/v1', model: small, cost: 1, {more}}}\n"
            f"  strong: {{backend: chat, base_url: '{strong}/v1', model: strong, cost: 10, {more}}}\n"
            f"  both: {joint}\n"
            "routes:\n" + "".join(f"  {name}: {{policy: {name}, deadline: 600s}}\n" for name in ("small", "strong", "both"))
        )
        router = await Router.open(str(path))
        try:
            yield router
        finally:
            await router.aclose()


def row(prompt: str, tokens: int) -> Chat:
    """Return a conversation whose answer is the likeliest one."""
    body = {"messages": [{"role": "user", "content": prompt}], "max_tokens": tokens, "temperature": 0}
    return Chat({name: Raw(json.dumps(value).encode()) for name, value in body.items()})


async def timed(router: Router, route: str, asked: Chat) -> Timed:
    """Stream one answer."""
    began, first, texts = time.perf_counter(), 0.0, []
    async with router.stream(router.request(asked, route=route)) as stream:
        async for text in stream:
            first = first or time.perf_counter() - began
            texts.append(text)
    total = time.perf_counter() - began
    served = stream.served
    if served is None or served.prediction is None:
        raise RheostatError(f"{route} gave no answer")
    finish = json.loads(served.prediction.output)["choices"][0]["finish_reason"]
    return Timed(first, total, "".join(texts), served.prediction.spans, finish)


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table."""
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for each in rows:
        print(f"| {' | '.join(str(value) for value in each)} |")
    print()
