"""Going on with a text over real llama.cpp servers and in this process; skipped where they are not installed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench import llama
from msgspec import Raw
from shallow import shallow

from rheostat.backends.chat import ChatModel
from rheostat.backends.gguf import GgufModel
from rheostat.router import Router
from rheostat.types import Chat, Prediction
from rheostat.types.begun import begun

FILE = llama.model_file()
if not llama.installed() or FILE is None:
    pytest.skip(llama.WANTED, allow_module_level=True)

TOKENS = 24
CUES = {
    "strong": "large", "strong_version": "1", "small": "small", "small_version": "1", "at": "sentence", "share": 0.5,
    "cues": [{"cue": word, "count": 9, "margin": 0.9, "own_margin": 0.8, "chosen": True} for word in ("the", "it", "this")],
}  # fmt: skip


def row(tokens: int = TOKENS) -> Chat:
    body = {"messages": [{"role": "user", "content": "Tell me about the sea."}], "max_tokens": tokens, "temperature": 0}
    return Chat({name: Raw(json.dumps(value).encode()) for name, value in body.items()})


@pytest.fixture(scope="module")
def root() -> Iterator[str]:
    with llama.served(context=512) as (address, _):
        yield address


@pytest.mark.parametrize("how", ["prefill", "completions", "gguf"])
def test_a_likeliest_text_cut_between_words_is_gone_on_with_as_it_was(root: str, how: str) -> None:
    async def go() -> list[tuple[str, str]]:
        backend: Any = (
            GgufModel(file=str(FILE), context=512, max_tokens=64)
            if how == "gguf"
            else ChatModel(base_url=f"{root}/v1", model="m", continues=how)  # type: ignore[arg-type]
        ).open("")
        try:
            (whole,) = await backend.apredict([begun(row(), "")], 60.0)
            cuts = [at for at, letter in enumerate(whole.label) if letter == " "][1::4]
            found = []
            for cut in (each + space for each in cuts for space in (0, 1)):
                for _ in range(3):  # llama.cpp closes a connection after a stream, which the next request may meet
                    (reply,) = await backend.apredict([begun(row(), whole.label[:cut])], 60.0)
                    if isinstance(reply, Prediction):
                        break
                found.append((whole.label, reply.label))
            return found
        finally:
            await backend.aclose()

    found = asyncio.run(go())
    assert len(found) > 6
    assert sum(goes_on[: len(whole)] != whole for whole, goes_on in found) <= 1  # sums in another order may tip a near tie


def test_answers_of_two_real_models(root: str, tmp_path: Path) -> None:
    assert FILE is not None
    shallow(FILE, tmp_path / "shallow.gguf", 26)
    (tmp_path / "cues.json").write_text(json.dumps(CUES))
    (tmp_path / "rheostat.yaml").write_text(f"""
task: chat
models:
  small: {{backend: gguf, file: shallow.gguf, context: 512, max_tokens: 200, stream: {{}}, cost: 1}}
  large: {{backend: chat, base_url: "{root}/v1", model: m, continues: prefill, cost: 10}}
  quick: {{backend: progressive, fast: small, strong: large, ahead: false}}
  turns: {{backend: relay, strong: large, small: small, cues: cues.json, most: 6}}
routes:
  quick: {{policy: quick, deadline: 60s}}
  turns: {{policy: turns, deadline: 60s}}
""")

    async def go() -> dict[str, tuple[str, Any]]:
        router = await Router.open(str(tmp_path / "rheostat.yaml"))
        try:
            found = {}
            for route, tokens in (("quick", 96), ("turns", 96)):
                async with router.stream(router.request(row(tokens), route=route)) as stream:
                    text = "".join([text async for text in stream])
                assert stream.served is not None
                found[route] = (text, stream.served.prediction)
            assert not any(model.in_flight for model in router.plan.pool.models.values())
            return found
        finally:
            await router.aclose()

    for route, (text, said) in asyncio.run(go()).items():
        assert said.label == text
        spans = said.spans
        usage = json.loads(said.output)["usage"]
        assert usage["completion_tokens"] == sum(span.tokens for span in spans) <= 96
        assert not any(span.failure for span in spans)
        if route == "turns":
            assert spans[0].model == "large"
            assert all(span.tokens <= 6 for span in spans if span.model == "small")
            assert {span.why for span in spans if span.model == "small"} <= {"cue: the", "cue: it", "cue: this"}
        else:
            assert spans[0].model == "small"


def test_a_model_of_this_process_answers_conversations_as_completions(root: str) -> None:
    async def go() -> tuple[Any, Any, list[Any]]:
        near: Any = GgufModel(file=str(FILE), context=512, max_tokens=64).open("")
        far: Any = ChatModel(base_url=f"{root}/v1", model="m", confidence="mean_logprob").open("")
        try:
            ((own,), (theirs,)) = [await backend.apredict([row(6)], 60.0) for backend in (near, far)]
            return own, theirs, [piece async for piece in near.astream(row(6), 60.0)]
        finally:
            await near.aclose()
            await far.aclose()

    own, theirs, pieces = asyncio.run(go())
    assert own.label == theirs.label
    assert own.confidence == pytest.approx(theirs.confidence, abs=1e-3)
    mine, other = (json.loads(said.output) for said in (own, theirs))
    assert mine["choices"][0]["message"] == other["choices"][0]["message"]
    assert mine["choices"][0]["finish_reason"] == other["choices"][0]["finish_reason"] == "length"
    assert mine["usage"]["completion_tokens"] == other["usage"]["completion_tokens"] == 6
    assert "".join(piece.text for piece in pieces) == own.label
    assert b'"finish_reason":"length"' in pieces[-1].chunk
