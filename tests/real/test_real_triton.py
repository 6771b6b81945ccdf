"""The Open Inference Protocol backend against a real Triton Inference Server."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from bench import triton
from bench.outage_process import Process, free_port

from rheostat.backends.inference import InferenceModel, InputTensor
from rheostat.backends.inference_classifier import InferenceClassifier
from rheostat.errors import ContractError, ModelError
from rheostat.pool.backend import Reply
from rheostat.router import Router
from rheostat.types import Prediction

if not triton.installed():
    pytest.skip(f"Triton is not installed: {triton.WANTED}", allow_module_level=True)

TEXT = InputTensor(name="TEXT")
NUMBERS = InputTensor(name="X", datatype="FP32", features=("a", "b"), batched=False)


class Real(NamedTuple):
    """A server that runs, and where."""

    process: Process
    sleep: Path
    urls: dict[str, str]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    folder: Path = tmp_path_factory.mktemp("triton")
    sleep, port, grpc_port = folder / "sleep", free_port(), free_port()
    sleep.write_text("0")
    process = triton.triton(folder, port, sleep, grpc_port)
    process.start()
    try:
        asyncio.run(process.until_ready())
        yield Real(process, sleep, {"http": f"http://127.0.0.1:{port}", "grpc": f"grpc://127.0.0.1:{grpc_port}"})
    finally:
        process.kill()
        triton.sweep(port)


@pytest.fixture(params=["http", "grpc"])
def root(server: Real, request: pytest.FixtureRequest) -> str:
    if request.param == "grpc":
        pytest.importorskip("grpc", reason="gRPC is not installed: pip install 'rheostat[grpc]'")
    return server.urls[request.param]


def opened(root: str, **settings: Any) -> InferenceClassifier:
    fixed: dict[str, Any] = {"model": "texts", "input": TEXT, "output": "PROBS", "labels": ("even", "odd")}
    backend = InferenceModel(base_url=root, **{**fixed, **settings}).open("")
    assert isinstance(backend, InferenceClassifier)
    return backend


def ask(root: str, rows: list[Any], **settings: Any) -> list[Reply]:
    async def go() -> list[Reply]:
        backend = opened(root, **settings)
        try:
            return list(await backend.apredict(rows, 10.0))
        except ModelError as error:
            return [error] * len(rows)
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
        ({"output": "NOTHING"}, "no output 'NOTHING'"),
        ({"input": InputTensor(name="NAME")}, "no input 'NAME'"),
        ({"input": InputTensor(name="TEXT", batched=False)}, "`input.batched`"),
        ({"input": InputTensor(name="TEXT", datatype="FP32", features=("a",))}, "takes BYTES"),
        ({"labels": ("a", "b", "c")}, "2 numbers a row, and there are 3 labels"),
    ],
)
def test_what_the_operator_got_wrong(root: str, settings: dict[str, Any], told: str) -> None:
    (reply,) = ask(root, [{"text": "ab", "a": 1}], **settings)
    assert isinstance(reply, ModelError)
    assert reply.kind == "misconfigured", reply
    assert told in str(reply)


def test_rows_together_and_one_by_one_say_the_same(root: str) -> None:
    rows = ["ab", "abc", "", "好看！", "a\x00b"] * 20
    assert ask(root, rows) == ask(root, rows, max_rows=1)


def test_what_triton_says_is_known_before_the_first_row(root: str) -> None:
    async def go() -> None:
        backend = opened(root)
        await backend.adescribe(5.0)
        facts = backend._facts
        assert facts is not None
        assert (facts.binary, facts.stacks, facts.wrong) == (root.startswith("http:"), True, ())
        await backend.acheck(5.0)
        with pytest.raises(ContractError, match="3 labels"):
            await opened(root, labels=("a", "b", "c")).adescribe(5.0)
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
        assert gone.kind == "misconfigured"
        (back,) = await loads.apredict(["ab"], 20.0)
        assert isinstance(back, Prediction)
        await backend.aload(20.0)
        await backend.acheck(5.0)
        await backend.aclose()
        await loads.aclose()

    asyncio.run(go())


def test_rows_are_answered_or_say_why_while_the_model_is_unloaded_and_loaded(root: str) -> None:
    async def go() -> list[Reply]:
        backend, replies = opened(root, load=True), list[Reply]()

        async def asking() -> None:
            while True:
                try:
                    replies.extend(await backend.apredict(["ab", "abc", ""], 5.0))
                except ModelError as error:
                    replies.append(error)
                await asyncio.sleep(0.002)

        tasks = [asyncio.create_task(asking()) for _ in range(4)]
        for _ in range(2):
            await asyncio.gather(backend.aunload(20.0), backend.aload(20.0), return_exceptions=True)
            await backend.aload(20.0)
            await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        ended = await backend.apredict(["ab", "abc"], 10.0)
        await backend.aclose()
        assert [reply.label for reply in ended if isinstance(reply, Prediction)] == ["even", "odd"]
        return replies

    replies = asyncio.run(go())
    kinds = {reply.kind if isinstance(reply, ModelError) else "answered" for reply in replies}
    assert "answered" in kinds
    assert kinds <= {"answered", "misconfigured", "upstream_error", "overloaded"}, kinds


BATCHED = """
models:
  texts: {{backend: inference_protocol, base_url: "{url}", model: texts, input: {{name: TEXT}}, output: PROBS,
          labels: [even, odd], batch: {{max_rows: 16, max_wait: 5ms, instances: 2}}, breaker: {{failureThreshold: 0}}}}
routes: {{default: {{policy: texts, deadline: 20s, fallback: {{retry: 0}}}}}}
"""


def test_requests_share_calls_and_each_gets_its_own_answer_beside_bad_ones(root: str, tmp_path: Path) -> None:
    (tmp_path / "rheostat.yaml").write_text(BATCHED.format(url=root))
    rows = ["raise" if number % 50 == 7 else "x" * (1 + number * number % 31) for number in range(200)]

    async def go() -> None:
        router = await Router.open(str(tmp_path / "rheostat.yaml"))
        try:
            served = await asyncio.gather(*(router.serve(router.request(row)) for row in rows))
            for row, each in zip(rows, served, strict=True):
                if row == "raise":
                    assert each.error is not None
                    assert each.record.outcomes[0].attempts[0].failure is not None
                    assert each.record.outcomes[0].attempts[0].failure.kind == "upstream_error"
                else:
                    assert each.prediction is not None, each.error
                    assert each.prediction.label == ("even" if len(row) % 2 == 0 else "odd")
            page = router.metrics.render().decode()
            calls, inferred = (
                float(re.findall(rf'^rheostat_batch_{name}_total\{{model="texts"\}} (\S+)$', page, re.MULTILINE)[0])
                for name in ("executions", "inferences")
            )
            assert inferred >= 200
            assert calls < inferred / 4, "requests went one by one"
        finally:
            await router.aclose()

    asyncio.run(go())


def test_time_that_is_over_and_a_server_that_dies_are_told_apart(server: Real, root: str) -> None:
    async def go() -> list[str]:
        kinds: list[str] = []

        async def kind(timeout_s: float) -> str:
            try:
                (reply,) = await backend.apredict(["ab"], timeout_s)
            except ModelError as error:
                return error.kind
            return reply.kind if isinstance(reply, ModelError) else reply.label

        backend = opened(root)
        kinds.append(await kind(5.0))
        server.sleep.write_text("0.6")
        kinds.append(await kind(0.2))
        await asyncio.sleep(0.6)
        waiting = asyncio.create_task(kind(5.0))
        await asyncio.sleep(0.3)
        server.process.kill()
        kinds.append(await waiting)
        await asyncio.sleep(0.1)
        kinds.append(await kind(5.0))
        server.sleep.write_text("0")
        server.process.start()
        await server.process.until_ready()
        await asyncio.sleep(1.2)
        kinds.append(await kind(5.0))
        await backend.aclose()
        return kinds

    first, late, died, down, back = asyncio.run(go())
    assert (first, late, died, back) == ("even", "timeout", "reset", "even")
    assert down in ("connection", "reset")
