"""A language model from a GGUF file, computed by llama.cpp in this process."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from rheostat.backends.chat_prompt import ChatSettings, instruction, messages
from rheostat.backends.gguf_answers import GgufAnswerer, GgufClassifier, GgufWriter
from rheostat.backends.gguf_engine import Engine, EngineSettings
from rheostat.backends.gguf_file import GgufFacts, read_gguf
from rheostat.backends.labels import settle_labels
from rheostat.backends.token_confidence import TokenConfidence
from rheostat.errors import ConfigError, MissingExtra, Problem
from rheostat.pool.memory import ceilings
from rheostat.resilience.residency import MemorySettings

CONTEXT = 2048


class GgufModel(ChatSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="gguf"):
    """The language model in `file`, a `.gguf` file, run by llama.cpp inside this process: needs the extra `gguf`.

    With `labels` it is a classifier: the score of a label is the probability that the model answers with its very tokens,
    as a share of that of all labels. `prompt` replaces the system prompt, which names the labels. Without `labels` it writes
    a text of up to `max_tokens` tokens, which ends before the first of `stop`; `prompt` is then the system prompt. Its
    `confidence` is the geometric mean of the probabilities of its tokens (`mean_logprob`), the mean lead of the most
    probable token over the next (`margin`), or how little the five most probable are spread (`entropy`). `temperature` 0
    always takes the most probable token; `seed` makes other temperatures repeatable. With `stream` a text comes piece by
    piece.

    `context` is how many tokens a prompt and its answer may have together (0: what the model was trained for, at most
    2,048); a prompt that leaves no room for the answer is `input_too_large`. `parallel` requests are computed at a time,
    each with a context of its own, by `threads` threads together; others wait. A prompt is read in parts of `prompt_batch`
    tokens, and a request that nobody waits for any more is stopped between two of them, or after the next token. `template`
    names a file with a chat template in Jinja; without it the one in the GGUF file is used.

    Loading keeps the whole process waiting: with `resident: false`, or where a crash of native code must not end the
    gateway, give the model `run: process`.
    """

    file: str
    template: str = ""
    context: Annotated[int, Meta(ge=0, le=1 << 24)] = 0
    parallel: Annotated[int, Meta(ge=1, le=16)] = 1
    threads: Annotated[int, Meta(ge=1, le=256)] = 1
    prompt_batch: Annotated[int, Meta(ge=16, le=4096)] = 64
    max_tokens: Annotated[int, Meta(ge=1)] = 256
    temperature: Annotated[float, Meta(ge=0.0, le=5.0)] = 0.0
    seed: Annotated[int, Meta(ge=0, lt=2**32 - 1)] = 0
    stop: tuple[Annotated[str, Meta(min_length=1)], ...] = ()
    confidence: TokenConfidence = "mean_logprob"

    extra = "gguf"

    def __post_init__(self) -> None:
        if self.labels and self.stream is not None:
            raise ValueError("with `labels` the model scores them and writes no text: remove `stream`, or remove `labels`")
        if self.stream is not None and self.processes is not None:
            raise ValueError("a process of its own gives whole answers only: remove `stream`, or keep the model in this one")
        if self.run == "inline":
            raise ValueError("`run: inline` is for models that answer within a millisecond; remove `run`")

    @property
    def rows_together(self) -> bool:
        """False: rows take their turns in `parallel` slots, and llama.cpp puts them together by itself."""
        return False

    def open(self, base: str) -> GgufAnswerer:
        """Load the model.

        Raises:
            ConfigError: the file is none, not complete or does not fit, or a setting cannot be used with it.
            MissingExtra: xllamacpp is not installed.
        """
        if find_spec("xllamacpp") is None:
            raise MissingExtra("backend gguf", "gguf")
        path = Path(base, self.file)
        try:
            facts = read_gguf(path)
        except ValueError as error:
            raise _refusal("file", f"{self.file}: {error}") from error
        context = self._context_of(facts)
        check_memory(self.file, facts, context * self.parallel)
        if not self.template and not facts.has_template:
            told = f"{self.file} brings no chat template, as base models do not: name a file with one in Jinja"
            raise _refusal("template", told)
        labels = settle_labels(self.labels, None, self.file)
        settings = EngineSettings(path, context, self.parallel, self.threads, self.prompt_batch, self._template_of(base))
        try:
            engine = Engine(settings, messages(instruction(self, labels or ()), "text"), labels or ())
        except ValueError as error:
            raise _refusal("file", f"{self.file}: {error}") from error
        return GgufClassifier(engine, self, context, labels) if labels else GgufWriter(engine, self, context)

    def _context_of(self, facts: GgufFacts) -> int:
        context = self.context or min(facts.context or CONTEXT, CONTEXT)
        if facts.context and context > facts.context:
            raise _refusal("context", f"{self.file} was trained for {facts.context} tokens, got {context}")
        if not self.labels and self.max_tokens >= context:
            told = f"an answer of {self.max_tokens} tokens leaves no room for a prompt in a context of {context}"
            raise _refusal("max_tokens", f"{told}: lower it, or raise `context`")
        return context

    def _template_of(self, base: str) -> str:
        if not self.template:
            return ""
        try:
            return Path(base, self.template).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise _refusal("template", f"{self.template} cannot be read: {error}") from error


def check_memory(file: str, facts: GgufFacts, tokens: int) -> None:
    """Refuse what would fill the memory, as the system would end the process for it."""
    try:
        free = min(each.limit - each.used() for each in ceilings(MemorySettings()))
    except ValueError:  # this system does not tell
        return
    cache = facts.token_bytes * tokens
    if facts.size + cache > free:
        mib = [f"{each / 2**20:,.0f} MiB" for each in (facts.size, cache, free)]
        told = f"{file} takes {mib[0]} and its context {mib[1]}, of which {mib[2]} are free"
        raise _refusal("file", f"{told}: lower `context` or `parallel`, or use a smaller model")


def _refusal(field: str, message: str) -> ConfigError:
    return ConfigError([Problem(field, None, message)])
