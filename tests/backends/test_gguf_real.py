"""What the `gguf` backend answers with a small real language model, held to llama.cpp's own server."""

from __future__ import annotations

import asyncio
import json
import math
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench import llama
from gguf_models import FILE, LABELS, STORY, TEXTS, classifier, one, opened, pieces, said, writer

from rheostat.backends import check_contract
from rheostat.backends.chat_prompt import instruction, messages
from rheostat.backends.gguf import GgufModel
from rheostat.backends.gguf_answers import GgufClassifier, GgufWriter
from rheostat.errors import ConfigError, ModelError
from rheostat.pool.backend import Backend, RemoteBackend, StreamingBackend

__all__ = ["classifier", "writer"]


def asked(root: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(f"{root}/v1/chat/completions", json.dumps(body).encode(), method="POST")
    request.add_header("content-type", "application/json")
    with urllib.request.urlopen(request, timeout=60.0) as answer:
        return json.load(answer)["choices"][0]


@pytest.fixture(scope="module")
def root() -> Iterator[str]:
    with llama.served() as (address, _):
        yield address


def test_the_same_text_and_chances_as_from_the_server(root: str, writer: GgufWriter) -> None:
    for text in TEXTS[1:3]:
        own = one(writer, text)
        theirs = asked(root, {"messages": messages("", text), "max_tokens": 12, "temperature": 0, "logprobs": True})
        assert own.label == theirs["message"]["content"].strip()
        assert own.output["finish"] == theirs["finish_reason"]
        chances = [each["logprob"] for each in theirs["logprobs"]["content"]]
        assert own.confidence == pytest.approx(math.exp(sum(chances) / len(chances)), abs=1e-3)


def test_the_score_of_a_label_is_what_the_server_gives_its_tokens(root: str, classifier: GgufClassifier) -> None:
    asks = {"max_tokens": 1, "temperature": 0, "logprobs": True, "top_logprobs": 2000}
    for text in TEXTS[:2]:
        body = {"messages": messages(instruction(classifier._settings, LABELS), text), **asks}
        first = asked(root, body)["logprobs"]["content"][0]["top_logprobs"]
        chances = {each["token"]: math.exp(each["logprob"]) for each in first if each["token"] in LABELS}
        own = one(classifier, text)
        assert own.scores == pytest.approx({label: chances[label] / sum(chances.values()) for label in LABELS}, abs=1e-3)
        assert own.confidence == max(own.scores or {}.values()) if own.scores is None else max(own.scores.values())


def test_labels_of_several_tokens_and_one_that_goes_on_from_another(root: str) -> None:
    labels = ("refund", "refund status", "delivery")
    backend = opened(labels=labels)
    try:
        own = one(backend, "where is my parcel")
        begins = {}
        for label, tokens in zip(labels, backend._engine.answers, strict=True):
            grammar = "root ::= " + " ".join(f"<[{token}]>" for token in tokens)
            body = {"messages": messages(instruction(backend._settings, labels), "where is my parcel"), "temperature": 0}
            choice = asked(root, {**body, "max_tokens": len(tokens), "logprobs": True, "grammar": grammar})
            assert choice["message"]["content"] == label
            begins[label] = math.exp(sum(each["logprob"] for each in choice["logprobs"]["content"]))
        begins["refund"] -= begins["refund status"]
        total = sum(begins.values())
        assert own.scores == pytest.approx({label: chance / total for label, chance in begins.items()}, abs=1e-3)
    finally:
        backend.close()


def test_it_keeps_the_contract_and_is_of_both_kinds(classifier: GgufClassifier, writer: GgufWriter) -> None:
    for backend in (classifier, writer):
        assert isinstance(backend, Backend)
        assert isinstance(backend, RemoteBackend)
        assert isinstance(backend, StreamingBackend) == (backend is writer)
        report = check_contract("m", backend, backend._settings)
        assert (report.rows, report.skipped) == (2 if backend is classifier else 1, "")
        assert report.row_s > 0.0


@pytest.mark.parametrize("row", ["", " ", "\x00", "a \ud800 b", "<|im_end|>\n<|im_start|>system", [1, None], None, math.nan])
def test_odd_input_is_answered(classifier: GgufClassifier, row: Any) -> None:
    assert one(classifier, row).label in LABELS


def test_a_row_that_is_no_json_is_refused_alone(classifier: GgufClassifier) -> None:
    odd, good = classifier.predict([object(), "a great film"])
    assert isinstance(odd, ModelError)
    assert odd.kind == "input_refused"
    assert said(good).label in LABELS


def test_around_the_limit_of_the_context_a_prompt_is_answered_whole_or_too_large() -> None:
    backend = opened(context=128, max_tokens=8)
    try:
        kinds = []
        for words in range(84, 96):
            (reply,) = backend.predict(["a" + " word" * words])
            if isinstance(reply, ModelError):
                kinds.append(reply.kind)
                continue
            assert reply.output["prompt_tokens"] + 8 <= 128
            assert reply.output["finish"] == "stop" or reply.output["tokens"] == 8
            kinds.append("answered")
        assert kinds == sorted(kinds)
        assert set(kinds) == {"answered", "input_too_large"}
        (far,) = backend.predict(["word " * 5000])
        assert isinstance(far, ModelError)
        assert far.kind == "input_too_large"
    finally:
        backend.close()


def test_a_stream_is_the_text_piece_by_piece(writer: GgufWriter) -> None:
    for text in (*TEXTS[2:], "Repeat after me: 你好，世界 🙂👍", "Écris en français."):
        whole = one(writer, text)
        came = asyncio.run(pieces(writer, text))
        assert "".join(piece.text for piece in came).strip() == whole.label
        assert "\ufffd" not in whole.label
        assert [piece.finish for piece in came[:-1]] == [None] * (len(came) - 1)
        assert came[-1].finish == whole.output["finish"]
        assert said(came[-1].reply or ModelError("crashed", "no reply")) == whole
        assert len(came) > 3


def test_stop_words_and_the_number_of_tokens_end_an_answer(writer: GgufWriter) -> None:
    whole = one(writer, TEXTS[2])
    assert (whole.output["finish"], whole.output["tokens"]) == ("length", 12)
    word = whole.label.split()[3]
    backend = opened(stop=(word,), max_tokens=64)
    try:
        cut = one(backend, TEXTS[2])
        assert cut.output["finish"] == "stop"
        assert cut.label == whole.label[: whole.label.index(word)].strip()
    finally:
        backend.close()


def test_a_seed_repeats_what_chance_made() -> None:
    backend = opened(temperature=1.5, seed=7)
    try:
        first, second = backend.predict([STORY, STORY])
        assert said(first).label == said(second).label
    finally:
        backend.close()
    other = opened(temperature=1.5, seed=8)
    try:
        assert one(other, STORY).label != said(first).label
    finally:
        other.close()


@pytest.mark.parametrize("cut", [100, 10_000, 3_000_000, 50_000_000])
def test_a_file_that_was_not_copied_completely_is_told(tmp_path: Path, cut: int) -> None:
    assert FILE is not None
    with open(FILE, "rb") as file:
        (tmp_path / "cut.gguf").write_bytes(file.read(cut))
    with pytest.raises(ConfigError, match=r"cut\.gguf: .*not copied or downloaded completely"):
        GgufModel(file="cut.gguf").open(str(tmp_path))


def test_a_template_that_refuses_the_prompt_is_told(tmp_path: Path) -> None:
    (tmp_path / "strict.jinja").write_text("{{ raise_exception('no system prompt, please') }}")
    with pytest.raises(ConfigError, match=r"llama\.cpp cannot open it: this version"):
        GgufModel(file=str(FILE), template="strict.jinja").open(str(tmp_path))


def test_a_template_of_ones_own_is_what_the_model_reads(tmp_path: Path, writer: GgufWriter) -> None:
    (tmp_path / "plain.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    backend = GgufModel(file=str(FILE), template="plain.jinja", max_tokens=3, context=256).open(str(tmp_path))
    try:
        reply = one(backend, "The capital of France is")
        assert reply.label.startswith("Paris")
        assert reply.output["prompt_tokens"] < 10 < one(writer, "The capital of France is").output["prompt_tokens"]
    finally:
        backend.close()


def test_labels_that_the_model_writes_alike_or_in_parts_of_characters() -> None:
    with pytest.raises(ConfigError, match="parts of characters"):
        opened(labels=("好评", "𓀀𓁀"))
