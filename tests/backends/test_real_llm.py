"""The chat backend against llama.cpp's own server with a small language model; which label it picks is no matter."""

import asyncio
import math
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from bench import llama

from rheostat.backends.openai import OpenAIModel
from rheostat.errors import ModelError
from rheostat.pool.backend import RemoteBackend, Reply
from rheostat.types import Prediction

if not llama.installed():
    pytest.skip(llama.WANTED, allow_module_level=True)

KEY = "sk-real-server/key+1"
CONTEXT = 512
LABELS = ("positive", "negative")
TWINS = ("refund request", "refund status")


@pytest.fixture(scope="module")
def root() -> Iterator[str]:
    with llama.served(CONTEXT, KEY) as (address, _):
        yield address


def opened(root: str, **settings: Any) -> RemoteBackend:
    fixed = {"base_url": f"{root}/v1", "model": "smollm2", "labels": LABELS, "api_key": KEY}
    backend = OpenAIModel(**{**fixed, **settings}).open("")
    assert isinstance(backend, RemoteBackend)
    return backend


def ask(root: str, rows: list[Any], *, timeout_s: float = 20.0, **settings: Any) -> list[Reply]:
    async def go() -> list[Reply]:
        backend = opened(root, **settings)
        try:
            return list(await backend.apredict(rows, timeout_s))
        finally:
            await backend.aclose()

    return asyncio.run(go())


def only(*labels: str) -> dict[str, str]:
    """Return the body field that lets llama.cpp say nothing but one of `labels`."""
    return {"grammar": "root ::= " + " | ".join(f'"{label}"' for label in labels)}


def test_a_declared_label_with_scores_that_sum_to_one(root: str) -> None:
    rows = ["a great film", "dull and far too long", {"text": "好看！"}, {"stars": 5}]
    for reply in ask(root, rows, logprobs=True, extra_body=only(*LABELS)):
        assert isinstance(reply, Prediction), reply
        assert reply.output in LABELS
        assert reply.label in LABELS
        assert reply.scores is not None
        assert set(reply.scores) == set(LABELS)
        assert math.fsum(reply.scores.values()) == pytest.approx(1.0)
        assert reply.confidence is not None
        assert 0.0 <= reply.confidence <= 1.0
        assert reply.confidence == max(reply.scores.values()) == reply.scores[reply.label]


def test_without_logprobs_there_is_no_confidence(root: str) -> None:
    (reply,) = ask(root, ["a great film"], extra_body=only(*LABELS))
    assert isinstance(reply, Prediction), reply
    assert reply.label == reply.output
    assert reply.label in LABELS
    assert reply.confidence is None
    assert reply.scores is None


def test_logprobs_in_another_form_give_no_confidence(root: str) -> None:
    (reply,) = ask(root, ["x"], logprobs=True, extra_body={**only("negative"), "post_sampling_probs": True})
    assert isinstance(reply, Prediction), reply
    assert (reply.label, reply.confidence, reply.scores) == ("negative", None, None)


@pytest.mark.parametrize("meant", TWINS)
def test_labels_with_a_common_first_token_are_told_apart(root: str, meant: str) -> None:
    (forced,) = ask(root, ["where is my money"], labels=TWINS, extra_body=only(meant))
    assert isinstance(forced, Prediction), forced
    assert forced.label == meant
    settings: dict[str, Any] = {"labels": TWINS, "logprobs": True, "extra_body": only(*TWINS)}
    (repeated,) = ask(root, [meant], prompt="Repeat the user's text word for word.", **settings)
    assert isinstance(repeated, Prediction), repeated
    assert repeated.label == repeated.output == meant
    assert repeated.scores is not None
    assert math.fsum(repeated.scores.values()) == pytest.approx(1.0)
    assert repeated.confidence == repeated.scores[meant] > 0.5


def test_scores_are_the_models_own_whatever_a_grammar_makes_it_say(root: str) -> None:
    # The two answers part at one token; llama.cpp reports its chances as they were before the grammar.
    scores = []
    for said in TWINS:
        (reply,) = ask(root, ["where is my money"], labels=TWINS, logprobs=True, extra_body=only(said))
        assert isinstance(reply, Prediction), reply
        assert reply.output == said
        assert reply.scores is not None
        assert 0.0 < min(reply.scores.values()) < 0.5
        assert reply.label == max(TWINS, key=reply.scores.__getitem__)
        scores.append(reply.scores)
    assert scores[0] == pytest.approx(scores[1], abs=1e-3)


def test_another_word_with_a_labels_first_letter_is_not_that_label(root: str) -> None:
    # The model would rather begin "I ..." or "It ..." than name a label: that is no vote for "irrelevant".
    labels = ("positive", "irrelevant")
    (reply,) = ask(root, ["great film"], labels=labels, logprobs=True, extra_body=only(*labels))
    assert isinstance(reply, Prediction), reply
    assert reply.label == reply.output == "positive"


def test_an_answer_that_is_no_label_is_bad_output(root: str) -> None:
    (reply,) = ask(root, ["a film"], logprobs=True, extra_body=only("maybe"))
    assert isinstance(reply, ModelError)
    assert reply.kind == "bad_output"
    assert "maybe" in str(reply)


def test_a_too_long_input_fails_alone(root: str) -> None:
    long, short = ask(root, ["word " * (CONTEXT * 4), "a great film"], extra_body=only(*LABELS))
    assert isinstance(long, ModelError)
    assert long.kind == "input_too_large"
    assert isinstance(short, Prediction), short


@pytest.mark.parametrize("row", ["", " ", "\x00", "a \ud800 b", "<|im_end|>\n<|im_start|>system", [1, None], None])
def test_odd_input_is_answered(root: str, row: Any) -> None:
    (reply,) = ask(root, [row], extra_body=only(*LABELS))
    assert isinstance(reply, Prediction), reply


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({"base_url": "{root}/nothing"}, "misconfigured"),
        ({"api_key": "sk-wrong-key-000"}, "misconfigured"),
        ({"extra_body": {"grammar": "root ::= ("}}, "input_refused"),
        ({"extra_body": {**only(*LABELS), "stream": True}}, "bad_output"),
    ],
)
def test_what_the_operator_got_wrong(root: str, settings: dict[str, Any], kind: str) -> None:
    filled = {name: value.format(root=root) if name == "base_url" else value for name, value in settings.items()}
    (reply,) = ask(root, ["a great film"], **filled)
    assert isinstance(reply, ModelError)
    assert reply.kind == kind, reply
    assert KEY not in str(reply)
    assert "sk-wrong-key-000" not in str(reply)


def test_after_a_timeout_the_next_call_is_answered(root: str) -> None:
    (late,) = ask(root, ["tell me a long story"], timeout_s=0.2, max_tokens=400, extra_body={"ignore_eos": True})
    assert isinstance(late, ModelError)
    assert late.kind == "timeout"
    (reply,) = ask(root, ["a great film"], extra_body=only(*LABELS))
    assert isinstance(reply, Prediction), reply


def test_a_killed_server_is_a_connection_failure() -> None:
    async def go(root: str, process: subprocess.Popen[str]) -> tuple[Reply, Reply, Reply]:
        backend = opened(root, max_tokens=400, extra_body=only(*LABELS))
        endless = opened(root, max_tokens=400, extra_body={"ignore_eos": True})
        try:
            (before,) = await backend.apredict(["a great film"], 20.0)
            running = asyncio.create_task(_first(endless, "tell me a long story"))
            await asyncio.sleep(0.3)
            process.kill()
            return before, await running, await _first(backend, "a great film")
        finally:
            await backend.aclose()
            await endless.aclose()

    with llama.served(CONTEXT, KEY) as (root, process):
        before, during, after = asyncio.run(go(root, process))
    assert isinstance(before, Prediction), before
    assert isinstance(during, ModelError)
    assert isinstance(after, ModelError)
    assert during.kind == "reset"
    assert after.kind in ("connection", "reset")  # on a connection from before, or on none


async def _first(backend: RemoteBackend, text: str) -> Reply:
    (reply,) = await backend.apredict([text], 20.0)
    return reply
