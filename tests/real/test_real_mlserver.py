"""The Open Inference Protocol backend against a real MLServer."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench import mlserver_process
from bench.outage_process import free_port

from rheostat.backends.inference import InferenceModel, InputTensor
from rheostat.backends.inference_classifier import InferenceClassifier
from rheostat.errors import ContractError, ModelError
from rheostat.pool.backend import Reply
from rheostat.types import Prediction

if not mlserver_process.installed():
    pytest.skip(f"MLServer is not installed: {mlserver_process.WANTED}", allow_module_level=True)

NUMBERS: dict[str, Any] = {
    "model": "numbers",
    "input": InputTensor(name="X", datatype="FP32", features=("a", "b")),
    "output": "P",
    "labels": ("a", "b"),
}


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder: Path = tmp_path_factory.mktemp("mlserver")
    (folder / "sleep").write_text("0")
    port, grpc_port = free_port(), free_port()
    process = mlserver_process.mlserver(folder, port, grpc_port, folder / "sleep")
    process.start()
    try:
        asyncio.run(process.until_ready())
        yield {"http": f"http://127.0.0.1:{port}", "grpc": f"grpc://127.0.0.1:{grpc_port}"}
    finally:
        process.kill()


@pytest.fixture(params=["http", "grpc"])
def root(urls: dict[str, str], request: pytest.FixtureRequest) -> str:
    if request.param == "grpc":
        pytest.importorskip("grpc", reason="gRPC is not installed: pip install 'rheostat[grpc]'")
    return urls[request.param]


def opened(root: str, **settings: Any) -> InferenceClassifier:
    fixed: dict[str, Any] = {
        "model": "texts",
        "input": InputTensor(name="TEXT"),
        "output": "PROBS",
        "labels": ("even", "odd"),
    }
    backend = InferenceModel(base_url=root, **{**fixed, **settings}).open("")
    assert isinstance(backend, InferenceClassifier)
    return backend


def ask(root: str, rows: list[Any], **settings: Any) -> list[Reply]:
    async def go() -> list[Reply]:
        backend = opened(root, **settings)
        try:
            return list(await backend.apredict(rows, 10.0))
        finally:
            await backend.aclose()

    return asyncio.run(go())


def test_texts_of_every_kind_get_their_own_answers(root: str) -> None:
    rows = ["ab", "abc", "", "好看！", "🙂👍", "x" * 100_001]
    for settings in ({}, {"output": "LOGITS", "softmax": True}, {"output": "LABEL"}):
        replies = ask(root, rows, **settings)
        assert [reply.label for reply in replies if isinstance(reply, Prediction)] == [
            "even" if len(row) % 2 == 0 else "odd" for row in rows
        ], replies  # fmt: skip


def test_rows_together_and_one_by_one_say_the_same_and_one_bad_row_fails_alone(root: str) -> None:
    rows: list[Any] = [{"a": 1, "b": index} for index in range(20)]
    assert ask(root, rows, **NUMBERS) == ask(root, rows, max_rows=1, **NUMBERS)
    rows[3], rows[5] = {"a": 0, "b": 0}, {"a": 1}
    replies = ask(root, rows, **NUMBERS)
    kinds = {index: reply.kind for index, reply in enumerate(replies) if isinstance(reply, ModelError)}
    assert kinds == {3: "misconfigured", 5: "input_refused"}, "MLServer answers a model's own error with 400"
    assert isinstance(replies[4], Prediction)
    assert replies[4].scores == pytest.approx({"a": 0.2, "b": 0.8})


def test_what_it_says_is_held_to_the_config(root: str) -> None:
    async def go() -> None:
        backend = opened(root)
        await backend.adescribe(5.0)
        await backend.acheck(5.0)
        facts = backend._facts
        assert facts is not None
        assert (facts.binary, facts.stacks, facts.wrong) == (False, True, ())
        for settings, told in (
            ({"labels": ("a", "b", "c")}, "3 labels"),
            ({"output": "NOTHING"}, "no output 'NOTHING'"),
            ({"input": InputTensor(name="NAME")}, "no input 'NAME'"),
        ):
            with pytest.raises(ContractError, match=told):
                await opened(root, **settings).adescribe(5.0)
        (gone,) = await opened(root, model="nobody").apredict(["ab"], 5.0)
        assert isinstance(gone, ModelError)
        assert gone.kind == "misconfigured"
        await backend.aclose()

    asyncio.run(go())


def test_a_model_is_unloaded_and_loaded_and_load_true_brings_it_back(root: str) -> None:
    async def go() -> None:
        backend, loads = opened(root), opened(root, load=True)
        await backend.aunload(10.0)
        with pytest.raises(ModelError):
            await backend.acheck(5.0)
        (gone,) = await backend.apredict(["ab"], 5.0)
        assert isinstance(gone, ModelError)
        (back,) = await loads.apredict(["ab"], 20.0)
        assert isinstance(back, Prediction), back
        await backend.aload(20.0)
        await backend.acheck(5.0)
        await backend.aclose()
        await loads.aclose()

    asyncio.run(go())
