"""Two real language models of one vocabulary, mixed token by token; skipped where they are not installed."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench import llama
from msgspec import Raw
from shallow import shallow

from rheostat.backends import check_contract
from rheostat.backends.gguf import GgufModel
from rheostat.backends.mixing import Nexts, mix
from rheostat.backends.mixture import MixtureModel
from rheostat.errors import ConfigError, ModelError
from rheostat.types import Chat, Prediction
from rheostat.types.begun import begun

FILE = llama.model_file()
if not llama.installed() or FILE is None:
    pytest.skip(llama.WANTED, allow_module_level=True)

QUESTIONS = ("Why is the sky blue?", "Count from one to ten.")
TOKENS = 8


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    assert FILE is not None
    other = tmp_path_factory.mktemp("models") / "shallow.gguf"
    shallow(FILE, other, 24)
    return str(FILE), str(other)


def opened(files: tuple[str, str], **more: Any) -> Any:
    given = {"weight": 0.5, "context": 256, "max_tokens": TOKENS, **more}
    return MixtureModel(first=files[0], second=files[1], **given).open("")


@pytest.fixture(scope="module")
def half(files: tuple[str, str]) -> Iterator[Any]:
    backend = opened(files)
    yield backend
    backend.close()


def label(backend: Any, row: Any) -> str:
    (reply,) = backend.predict([row])
    assert isinstance(reply, Prediction), reply
    return reply.label


@pytest.mark.parametrize("form", ["linear", "product"])
def test_all_weight_on_one_model_is_that_model(files: tuple[str, str], form: str) -> None:
    for place, weight in enumerate((0.0, 1.0)):
        alone = GgufModel(file=files[place], context=256, max_tokens=TOKENS).open("")
        mixed = opened(files, weight=weight, form=form)
        try:
            assert [label(mixed, text).strip() for text in QUESTIONS] == [label(alone, text) for text in QUESTIONS]
            assert mixed.computed[1 - place] == 0
        finally:
            alone.close()
            mixed.close()


@pytest.mark.parametrize("form", ["linear", "product"])
def test_in_between_every_token_is_the_likeliest_of_the_mixture(files: tuple[str, str], half: Any, form: str) -> None:
    mixed = half if form == "linear" else opened(files, form=form)
    try:
        text = label(mixed, QUESTIONS[0])
        chat = [{"role": "user", "content": QUESTIONS[0]}]
        prompts = [engine.tokens(chat, "") for engine in mixed._engines]
        written = list(mixed._engines[0].tokens(chat, text)[len(prompts[0]) :])
        for place in (0, 3, len(written) - 1):
            whole = [told(mixed, model, [*prompts[model], *written[:place]]) for model in (0, 1)]
            assert all(math.fsum(map(math.exp, each.known.values())) == pytest.approx(1.0, abs=1e-3) for each in whole)
            assert mix(whole, (0.5, 0.5), form).best == written[place]  # type: ignore[arg-type]
    finally:
        if mixed is not half:
            mixed.close()


def told(mixed: Any, model: int, ids: list[int]) -> Nexts:
    """The whole distribution, of every token of the vocabulary."""
    turn = mixed._engines[model].begin(lambda turn: mixed._next(model, ids, 1 << 17, {}, turn))
    found: Nexts = turn.future.result()
    return found


def test_the_weight_by_margin_and_by_progress(files: tuple[str, str]) -> None:
    first = GgufModel(file=files[0], context=256, max_tokens=TOKENS).open("")
    sure, grows = opened(files, by="margin", sure=0.05), opened(files, by="progress", weight=1.0, over=4)
    try:
        alone = label(first, QUESTIONS[0])
        assert label(sure, QUESTIONS[0]).strip() == alone
        assert sure.computed == [TOKENS, 0]
        label(grows, QUESTIONS[0])
        assert grows.computed == [4, TOKENS - 1]
    finally:
        for backend in (first, sure, grows):
            backend.close()


def test_drawn_tokens_are_repeatable_and_differ_by_seed(files: tuple[str, str]) -> None:
    texts = []
    for seed in (1, 1, 2):
        backend = opened(files, temperature=1.5, seed=seed)
        texts.append(label(backend, QUESTIONS[0]))
        backend.close()
    assert texts[0] == texts[1] != texts[2]


def test_it_streams_keeps_the_contract_and_goes_on_with_a_text(half: Any) -> None:
    assert check_contract("half", half, MixtureModel(first="a", second="b", weight=0.5)).rows == 1
    last = label(half, QUESTIONS[0]).split()[-2]
    body = {"messages": [{"role": "user", "content": QUESTIONS[0]}], "stop": [last]}
    row = Chat({name: Raw(json.dumps(value).encode()) for name, value in body.items()})

    async def heard(asked: Any) -> list[Any]:
        return [piece async for piece in half.astream(asked, 60.0)]

    pieces = asyncio.run(heard(row))
    said = json.loads(pieces[-1].reply.output)
    assert last not in "".join(piece.text for piece in pieces)
    assert said["choices"][0]["finish_reason"] == pieces[-1].finish == "stop"
    assert b'"finish_reason":"stop"' in pieces[-1].chunk
    assert all(json.loads(piece.chunk[6:])["choices"][0]["delta"]["content"] == piece.text for piece in pieces[:-1])
    pieces = asyncio.run(heard(begun(QUESTIONS[0], "The sky is ", 4)))
    assert not any(piece.chunk for piece in pieces)
    assert pieces[-1].reply.label == "The sky is " + "".join(piece.text for piece in pieces)
    assert json.loads(pieces[-1].reply.output)["usage"]["completion_tokens"] == 4


def test_what_is_too_long_is_refused_and_who_leaves_stops_it(half: Any) -> None:
    (reply,) = half.predict(["word " * 300])
    assert isinstance(reply, ModelError)
    assert reply.kind == "input_too_large"

    async def leave() -> None:
        stream = half.astream(QUESTIONS[1], 60.0)
        await anext(stream)
        await stream.aclose()

    before = half.computed[0]
    asyncio.run(leave())
    assert label(half, QUESTIONS[0])  # the turn is free again
    assert half.computed[0] < before + 2 * TOKENS


def test_other_vocabularies_are_refused(files: tuple[str, str], tmp_path: Path) -> None:
    whole = Path(files[0]).read_bytes()
    at = whole.index(b"<|im_start|>")
    (tmp_path / "other.gguf").write_bytes(whole[:at] + b"<|im_begin|>" + whole[at + 12 :])
    with pytest.raises(ConfigError, match="vocabulary"):
        MixtureModel(first=files[0], second=str(tmp_path / "other.gguf"), weight=0.5).open("")
    with pytest.raises(ConfigError, match="GGUF"):
        MixtureModel(first=files[0], second=__file__, weight=0.5).open("")
