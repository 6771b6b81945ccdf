"""Two language models that write every token of an answer together."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from rheostat.backends.chat_prompt import messages
from rheostat.backends.gguf import CONTEXT, check_memory
from rheostat.backends.gguf_engine import Engine, EngineSettings
from rheostat.backends.gguf_file import GgufFacts, read_gguf
from rheostat.backends.mixing import MixForm
from rheostat.backends.mixture_writer import MixtureWriter
from rheostat.errors import ConfigError, MissingExtra, Problem
from rheostat.pool.backend import ModelSettings

MixBy = Literal["fixed", "margin", "progress"]
"""What the second model's weight goes by."""


class MixtureModel(ModelSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="mixture"):
    """The language models in `first` and `second`, two `.gguf` files with one vocabulary, run by llama.cpp inside this
    process: needs the extra `gguf`. Every token comes from a mixture of both distributions.

    `weight` is that of the second model, the first has the rest. `form` is `linear` (the mean of the probabilities) or
    `product` (their geometric mean). By `fixed` the weight stays; by `margin` the second model is only asked where the
    first one's likeliest token leads the next by less than `sure`; by `progress` the weight grows from 0 to `weight` over
    the first `over` tokens. `temperature` 0 takes the likeliest token of the mixture,
    exactly; above it a token is drawn from those that the models tell of, 512 each, which leaves out about a thousandth;
    `seed` makes that repeatable.

    `context`, `threads` (of each model), `prompt_batch`, `max_tokens`, `prompt` and `stop` are as for `gguf`; one answer is
    written at a time.
    """

    first: str
    second: str
    weight: Annotated[float, Meta(ge=0.0, le=1.0)]
    form: MixForm = "linear"
    by: MixBy = "fixed"
    sure: Annotated[float, Meta(gt=0.0, le=1.0)] = 0.9
    over: Annotated[int, Meta(ge=1)] = 32
    prompt: str = ""
    context: Annotated[int, Meta(ge=0, le=1 << 24)] = 0
    threads: Annotated[int, Meta(ge=1, le=256)] = 1
    prompt_batch: Annotated[int, Meta(ge=16, le=4096)] = 64
    max_tokens: Annotated[int, Meta(ge=1)] = 256
    temperature: Annotated[float, Meta(ge=0.0, le=5.0)] = 0.0
    seed: Annotated[int, Meta(ge=0, lt=2**32 - 1)] = 0
    stop: tuple[Annotated[str, Meta(min_length=1)], ...] = ()

    extra = "gguf"

    def __post_init__(self) -> None:
        if self.labels:
            raise ValueError("a mixture writes texts: remove `labels`; to mix scores of labels use the policy `blend`")
        if self.run != "auto" or self.workers is not None:
            raise ValueError("a mixture computes in threads of this process: remove `run` and `workers`")

    @property
    def rows_together(self) -> bool:
        """False: one answer is written at a time."""
        return False

    def open(self, base: str) -> MixtureWriter:
        """Load both models.

        Raises:
            ConfigError: a file is none, not complete or does not fit, or they have different vocabularies.
            MissingExtra: xllamacpp is not installed.
        """
        if find_spec("xllamacpp") is None:
            raise MissingExtra("backend mixture", "gguf")
        files = {"first": self.first, "second": self.second}
        facts = [_facts(base, file, field) for field, file in files.items()]
        if facts[0].vocabulary != facts[1].vocabulary or not facts[0].vocabulary:
            told = f"its vocabulary is another than that of {self.first}, so their tokens are not the same things"
            raise _refusal("second", f"{told}: mix models of one family, or let a policy choose one")
        context = self.context or min(*(each.context or CONTEXT for each in facts), CONTEXT)
        if self.max_tokens >= context:
            raise _refusal("max_tokens", f"an answer of {self.max_tokens} tokens leaves no room in a context of {context}")
        engines: list[Engine] = []
        try:
            for file, each in zip(files.values(), facts, strict=True):
                check_memory(file, each, context)
                settings = EngineSettings(Path(base, file), context, 1, self.threads, self.prompt_batch, "")
                engines.append(Engine(settings, messages(self.prompt, "text"), pages=True))
        except ValueError as error:
            for engine in engines:
                engine.close()
            raise _refusal("first", str(error)) from error
        return MixtureWriter((engines[0], engines[1]), self, context, facts[0].ends)


def _facts(base: str, file: str, field: str) -> GgufFacts:
    try:
        facts = read_gguf(Path(base, file))
    except ValueError as error:
        raise _refusal(field, f"{file}: {error}") from error
    if not facts.has_template:
        raise _refusal(field, f"{file} brings no chat template, as base models do not: take an instruct model")
    return facts


def _refusal(field: str, message: str) -> ConfigError:
    return ConfigError([Problem(field, None, message)])
