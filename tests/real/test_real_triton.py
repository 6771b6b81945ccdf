"""The Open Inference Protocol backend against a real Triton Inference Server."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench import triton
from bench.outage_process import free_port

from rheostat.backends.inference import InferenceModel, InputTensor
from rheostat.errors import ModelError
from rheostat.pool.backend import RemoteBackend, Reply
from rheostat.types import Prediction

if not triton.installed():
    pytest.skip(f"Triton is not installed: {triton.WANTED}", allow_module_level=True)

TEXT = InputTensor(name="TEXT")
NUMBERS = InputTensor(name="X", datatype="FP32", features=("a", "b"), batched=False)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("triton")
    sleep, port = folder / "sleep", free_port()
    sleep.write_text("0")
    server = triton.triton(folder, port, sleep)
    server.start()
    try:
        asyncio.run(server.until_ready())
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        triton.sweep(port)


def ask(root: str, rows: list[Any], **settings: Any) -> list[Reply]:
    fixed: dict[str, Any] = {"model": "texts", "input": TEXT, "output": "PROBS", "labels": ("even", "odd")}

    async def go() -> list[Reply]:
        backend = InferenceModel(base_url=root, **{**fixed, **settings}).open("")
        assert isinstance(backend, RemoteBackend)
        try:
            return list(await backend.apredict(rows, 10.0))
        finally:
            await backend.aclose()

    return asyncio.run(go())


def test_texts_of_every_kind_get_their_own_probabilities(root: str) -> None:
    rows = ["ab", "abc", "", "好看！", {"text": "🙂👍"}, "a\x00b", "x" * 100_001]
    for row, reply in zip(rows, ask(root, rows), strict=True):
        assert isinstance(reply, Prediction), reply
        text = row["text"] if isinstance(row, dict) else row
        assert reply.label == ("even" if len(text) % 2 == 0 else "odd"), text[:10]
        assert reply.scores == pytest.approx({"even": 0.952574, "odd": 0.047426} if reply.label == "even" else
                                             {"even": 0.047426, "odd": 0.952574}, abs=1e-5)  # fmt: skip


def test_logits_and_labels_say_the_same(root: str) -> None:
    (probabilities,), (logits,), (label,) = (
        ask(root, ["abc"]),
        ask(root, ["abc"], output="LOGITS", softmax=True),
        ask(root, ["abc"], output="LABEL"),
    )
    assert isinstance(probabilities, Prediction)
    assert isinstance(logits, Prediction)
    assert logits.scores == pytest.approx(probabilities.scores, abs=1e-6)
    assert label == Prediction("odd")


def test_numbers_without_a_batch_dimension(root: str) -> None:
    numbers: dict[str, Any] = {"model": "numbers", "input": NUMBERS, "output": "P", "labels": ("a", "b")}
    good, missing, failed = ask(root, [{"a": 1, "b": 3}, {"a": 1}, {"a": 0, "b": 0}], **numbers)
    assert good == Prediction("b", 0.75, {"a": 0.25, "b": 0.75})
    assert isinstance(missing, ModelError)
    assert missing.kind == "input_refused"
    assert isinstance(failed, ModelError)
    assert failed.kind == "upstream_error"
    assert "the sum is 0" in str(failed)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"model": "nobody"}, "unknown model"),
        ({"version_path": "7"}, "version 7"),
        ({"output": "NOTHING"}, "unexpected inference output"),
        ({"input": InputTensor(name="NAME")}, "unexpected inference input"),
        ({"input": InputTensor(name="TEXT", batched=False)}, "unexpected shape"),
        ({"input": InputTensor(name="TEXT", datatype="FP32", features=("a",))}, "data-type"),
    ],
)
def test_what_the_operator_got_wrong(root: str, settings: dict[str, Any], told: str) -> None:
    (reply,) = ask(root, [{"text": "ab", "a": 1}], **settings)
    assert isinstance(reply, ModelError)
    assert reply.kind == "misconfigured", reply
    assert told in str(reply)


def test_labels_of_another_number_are_a_fault(root: str) -> None:
    (reply,) = ask(root, ["ab"], labels=("a", "b", "c"))
    assert isinstance(reply, ModelError)
    assert reply.kind == "bad_output"
