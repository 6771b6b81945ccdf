"""The `gguf` backend with a small real language model: held to llama.cpp's own server, cut off, crowded, and closed."""

from __future__ import annotations

import asyncio
import json
import math
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from bench import llama

from rheostat.backends import check_contract
from rheostat.backends.chat_prompt import instruction, messages
from rheostat.backends.gguf import GgufModel
from rheostat.backends.gguf_answers import GgufAnswerer, GgufClassifier, GgufWriter
from rheostat.errors import ConfigError, ModelError
from rheostat.pool.backend import Backend, Piece, RemoteBackend, Reply, StreamingBackend
from rheostat.types import Prediction

FILE = llama.model_file()
if not llama.installed() or FILE is None:
    pytest.skip(llama.WANTED, allow_module_level=True)

LABELS = ("positive", "negative")
TEXTS = ("a great film", "dull and far too long", "Say hello in one sentence.", "Count to ten.")
STORY = "Tell me a long story about a fox."


def opened(**settings: Any) -> Any:
    return GgufModel(**{"file": str(FILE), "context": 512, "max_tokens": 12, **settings}).open("")


@pytest.fixture(scope="module")
def classifier() -> Iterator[GgufClassifier]:
    backend = opened(labels=LABELS)
    yield backend
    backend.close()


@pytest.fixture(scope="module")
def writer() -> Iterator[GgufWriter]:
    backend = opened()
    yield backend
    backend.close()


def said(reply: Reply) -> Prediction:
    assert isinstance(reply, Prediction), reply
    return reply


def one(backend: GgufAnswerer, row: Any) -> Prediction:
    return said(backend.predict([row])[0])


async def pieces(backend: GgufWriter, row: Any) -> list[Piece]:
    return [piece async for piece in backend.astream(row, 60.0)]


def generated(backend: GgufAnswerer, name: str = "tokens_predicted_total") -> int:
    """How many tokens the engine has computed for answers that have ended or were stopped."""
    page = backend._engine._server.handle_metrics()
    return next(int(float(line.split()[1])) for line in page.splitlines() if line.startswith(f"llamacpp:{name} "))


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


def test_who_leaves_stops_the_computation_within_a_few_tokens() -> None:
    backend = opened(max_tokens=400)

    async def leave(after: int) -> None:
        async with aclosing(backend.astream(STORY, 60.0)) as stream:
            count = 0
            async for _ in stream:
                count += 1
                if count == after:
                    break

    try:
        for after in (1, 5, 9):
            before = generated(backend)
            asyncio.run(leave(after))
            one_more = opened_after(backend)
            assert generated(backend) - before - one_more <= after + 4
    finally:
        backend.close()


def opened_after(backend: GgufWriter) -> int:
    """Have a short text written by the same slot, which can begin only when the last one has ended; returns its tokens."""
    backend.probes, (trial,) = backend.probes, backend.probes or ()
    return int(one(backend, trial).output["tokens"])


def test_a_prompt_that_nobody_waits_for_is_not_read_to_its_end() -> None:
    backend = opened(context=2048, prompt_batch=16)
    try:
        before = generated(backend, "prompt_tokens_total")
        (late,) = (asyncio.run(late_kind(backend, "word " * 1500)),)
        assert late == "timeout"
        opened_after(backend)
        assert generated(backend, "prompt_tokens_total") - before < 1000
    finally:
        backend.close()


async def late_kind(backend: GgufAnswerer, row: str) -> str:
    try:
        await backend.apredict([row], 0.3)
    except ModelError as error:
        return error.kind
    return "answered"


def test_many_at_once_wait_for_their_turn_and_are_answered_as_alone(classifier: GgufClassifier) -> None:
    texts = [f"{text} {number}" for number in range(2) for text in TEXTS]
    alone = [one(classifier, text) for text in texts]
    crowd = opened(labels=LABELS, parallel=4)

    async def ask_all() -> list[Reply]:
        return [reply for (reply,) in await asyncio.gather(*[crowd.apredict([text], 60.0) for text in texts])]

    try:
        for mine, theirs in zip(map(said, asyncio.run(ask_all())), alone, strict=True):
            assert mine.scores == pytest.approx(theirs.scores, abs=0.01)
    finally:
        crowd.close()


def test_who_leaves_the_line_is_never_computed(writer: GgufWriter) -> None:
    async def go() -> int:
        running = asyncio.create_task(pieces(writer, STORY))
        await asyncio.sleep(0.05)
        before = generated(writer)
        waiting = [asyncio.create_task(writer.apredict([text], 60.0)) for text in TEXTS * 5]
        await asyncio.sleep(0.05)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await running
        return before

    before = asyncio.run(go())
    assert generated(writer) - before <= 12 + opened_after(writer)


def test_two_models_do_not_know_of_each_other(writer: GgufWriter) -> None:
    before = one(writer, TEXTS[2])
    other = opened(labels=LABELS, prompt="Is it good?")
    running = asyncio.run(together(writer, other))
    other.close()
    assert [reply.label for reply in running] == [before.label] * 3
    assert one(writer, TEXTS[2]) == before


async def together(writer: GgufWriter, other: GgufClassifier) -> list[Prediction]:
    asks = [writer.apredict([TEXTS[2]], 60.0) for _ in range(3)] + [other.apredict(TEXTS, 60.0) for _ in range(3)]
    replies = await asyncio.gather(*asks)
    return [said(reply) for (reply,) in replies[:3]]


def test_closing_ends_what_runs_and_refuses_what_comes() -> None:
    backend = opened(max_tokens=400)

    async def go() -> list[str]:
        running = [asyncio.create_task(late(backend.apredict([STORY], 60.0))) for _ in range(3)]
        await asyncio.sleep(0.4)
        await backend.aclose()
        return [*[await task for task in running], await late(backend.apredict([STORY], 60.0))]

    assert asyncio.run(go()) == ["unavailable"] * 4
    backend.close()


async def late(call: Any) -> str:
    try:
        (reply,) = await call
    except ModelError as error:
        reply = error
    return reply.kind if isinstance(reply, ModelError) else "answered"


def test_nothing_outside_the_process_can_reach_the_engine(writer: GgufWriter) -> None:
    address = str(writer._engine._server.listening_address)
    assert address.startswith("unix://")
    assert not Path(address.removeprefix("unix://")).exists()


@pytest.mark.parametrize("cut", [100, 10_000, 3_000_000, 50_000_000])
def test_a_file_that_was_not_copied_completely_is_told(tmp_path: Path, cut: int) -> None:
    assert FILE is not None
    with open(FILE, "rb") as file:
        (tmp_path / "cut.gguf").write_bytes(file.read(cut))
    with pytest.raises(ConfigError, match=r"cut\.gguf: .*not copied or downloaded completely"):
        GgufModel(file="cut.gguf").open(str(tmp_path))


def test_a_template_that_refuses_the_prompt_is_told(tmp_path: Path) -> None:
    (tmp_path / "strict.jinja").write_text("{{ raise_exception('no system prompt, please') }}")
    with pytest.raises(ConfigError, match=r"llama\.cpp cannot open it, and says why"):
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


def run(code: str) -> list[str]:
    """Run `code` in a process of its own, as it may end it or needs a memory of its own."""
    head = f"import multiprocessing, time\nfrom rheostat.backends.gguf import GgufModel\nFILE = {str(FILE)!r}\n"
    ran = subprocess.run([sys.executable, "-c", head + code], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, (ran.returncode, ran.stdout, ran.stderr[-2000:])
    return ran.stdout.split()


def test_a_forked_copy_refuses_and_ends_and_the_original_goes_on() -> None:
    code = """
backend = GgufModel(file=FILE, context=256, max_tokens=4).open("")
first = backend.predict(["hello"])[0].label
def copy():
    global backend
    try:
        backend.predict(["hello"])
    except Exception as error:
        print(error.kind, flush=True)
    backend.close()
    del backend
child = multiprocessing.get_context("fork").Process(target=copy)
child.start()
child.join()
assert child.exitcode == 0
print(backend.predict(["hello"])[0].label == first)
backend.close()
"""
    assert run(code) == ["unavailable", "True"]


def test_memory_comes_back_when_it_is_closed() -> None:
    code = """
from rheostat.pool.memory import give_back, process_bytes
sizes = []
for _ in range(4):
    before = process_bytes()
    backend = GgufModel(file=FILE, context=512, max_tokens=4).open("")
    backend.predict(["hello"])
    full = process_bytes()
    backend.close()
    del backend
    give_back(full, full - before)
    sizes.append((full, process_bytes()))
print(sizes[-1][0] - sizes[-1][1], sizes[-1][1] - sizes[1][1])
"""
    back, kept = map(int, run(code))
    assert back > 90_000_000
    assert kept < 8_000_000


def test_a_process_ends_although_a_text_is_being_written() -> None:
    began = time.monotonic()
    code = """
backend = GgufModel(file=FILE, max_tokens=2000, context=2048).open("")
backend._begin("tell a story")
time.sleep(1)
"""
    run(code)
    assert time.monotonic() - began < 50.0
