"""`tritonclient`, over HTTP and gRPC, against Rheostat: what Triton's users have works by changing the address."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import triton_clients

from rheostat.gateway.handle import ServerHandle

if not triton_clients.installed():
    pytest.skip(f"tritonclient is not installed: {triton_clients.WANTED}", allow_module_level=True)
pytest.importorskip("grpc", reason="gRPC is not installed: pip install 'rheostat[grpc]'")
http, over_grpc = triton_clients.client("http"), triton_clients.client("grpc")
http_aio, grpc_aio = triton_clients.client("http.aio"), triton_clients.client("grpc.aio")
Refused: type[Exception] = triton_clients.client("utils").InferenceServerException

MODELS = """
import asyncio

def words(rows):
    return [{"long": min(1.0, len(row) / 10), "short": 1 - min(1.0, len(row) / 10)} for row in rows]

def numbers(rows):
    if any(row.get("a") is None for row in rows):
        raise ValueError("no a")
    return [("large" if row["a"] + row["b"] > 1 else "small", 0.75) for row in rows]

async def slow(rows):
    await asyncio.sleep(5)
    return ["late"] * len(rows)
"""
CONFIG = """
models:
  words: {backend: python, callable: "client_models:words", labels: [short, long]}
  numbers: {backend: python, callable: "client_models:numbers", labels: [small, large]}
  slow: {backend: python, callable: "client_models:slow"}
routes:
  default: {policy: words, models: [words]}
  numbers: {policy: numbers, models: [numbers], fallback: {retry: 0}}
  slow: {policy: slow, models: [slow], fallback: {retry: 0}}
server: {grpc_port: 0, max_batch: 40}
keys: [{key: a-key-of-its-own-24, may_force: true}]
"""
KEY = {"authorization": "Bearer a-key-of-its-own-24"}
"""Copied for each call: the library writes headers of its own into what it is given."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerHandle]:
    folder = tmp_path_factory.mktemp("clients")
    (folder / "client_models.py").write_text(MODELS)
    path = folder / "rheostat.yaml"
    path.write_text(CONFIG)
    with ServerHandle(str(path)) as handle:
        yield handle


class Asking:
    """One kind of client: over HTTP with tensors in JSON or in binary, or over gRPC."""

    def __init__(self, kind: str, gateway: ServerHandle) -> None:
        self.library: Any = over_grpc if kind == "grpc" else http
        self.binary = kind != "json"
        port = gateway.server.grpc_port if kind == "grpc" else gateway.server.port
        self.client = self.library.InferenceServerClient(f"127.0.0.1:{port}")
        self.is_http = kind != "grpc"

    def tensor(self, name: str, values: Any) -> Any:
        kinds = {"O": "BYTES", "f": "FP32", "i": "INT64"}
        given = self.library.InferInput(name, list(values.shape), kinds[values.dtype.kind])
        given.set_data_from_numpy(values, **({"binary_data": self.binary} if self.is_http else {}))
        return given

    def wanted(self, *names: str) -> list[Any]:
        more = {"binary_data": self.binary} if self.is_http else {}
        return [self.library.InferRequestedOutput(name, **more) for name in names]

    def infer(self, name: str, *tensors: Any, outputs: list[Any] | None = None, **more: Any) -> Any:
        return self.client.infer(name, list(tensors), outputs=outputs, headers=dict(KEY), **more)


@pytest.fixture(params=["json", "binary", "grpc"])
def asking(gateway: ServerHandle, request: pytest.FixtureRequest) -> Iterator[Asking]:
    made = Asking(request.param, gateway)
    yield made
    made.client.close()


def texts(*given: str) -> Any:
    return np.array([each.encode() for each in given], dtype=object)


def text_of(values: Any) -> list[str]:
    return [each.decode() if isinstance(each, bytes) else each for each in values]


def test_it_says_what_it_is(asking: Asking) -> None:
    client = asking.client
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("default", headers=dict(KEY))
    more = {} if asking.is_http else {"as_json": True}
    assert client.get_server_metadata(**more)["name"] == "rheostat"
    about = client.get_model_metadata("default", headers=dict(KEY), **more)
    assert [each["name"] for each in about["inputs"]] == ["text"]
    assert client.is_model_ready("default", model_version=about["versions"][0], headers=dict(KEY))


def test_texts_alone_and_in_a_batch(asking: Asking) -> None:
    rows = ["ab", "a long text 🙂", "", "好看！"] * 10
    result = asking.infer("default", asking.tensor("text", texts(*rows)), outputs=asking.wanted("label", "scores", "labels"))
    assert text_of(result.as_numpy("label")) == ["short", "long", "short", "short"] * 10
    assert text_of(result.as_numpy("labels")) == ["short", "long"]
    scores = result.as_numpy("scores")
    assert (scores.shape, scores.dtype) == ((40, 2), np.float32)
    np.testing.assert_allclose(scores[0], [0.8, 0.2], rtol=1e-6)
    for row in rows[:4]:
        alone = asking.infer("default", asking.tensor("text", texts(row).reshape(1, 1)), request_id="own-1")
        assert text_of(alone.as_numpy("label")) == text_of(result.as_numpy("label"))[rows.index(row) :][:1]
        answered = alone.get_response()
        assert (answered["id"] if asking.is_http else answered.id) == "own-1"


def test_numbers_by_name_and_as_a_matrix(asking: Asking) -> None:
    a, b = np.array([[0.5], [0.2]], np.float32), np.array([[0.75], [0.25]], np.float32)
    apart = asking.infer("numbers", asking.tensor("a", a), asking.tensor("b", b))
    matrix = asking.infer("numbers", asking.tensor("x", np.hstack([a, b])), parameters={"names": "a,b"})
    for result in (apart, matrix):
        assert text_of(result.as_numpy("label")) == ["large", "small"]
        np.testing.assert_allclose(result.as_numpy("confidence"), [0.75, 0.75])


def test_one_bad_row_is_named_and_its_neighbours_answered(asking: Asking) -> None:
    rows = np.array([[0.5, 0.75], [np.nan, 1.0], [0.1, 0.1]], np.float32)
    if asking.is_http and not asking.binary:
        with pytest.raises(Refused, match="JSON is malformed"):  # JSON has no NaN, whatever the library writes
            asking.infer("numbers", asking.tensor("x", rows), parameters={"names": "a,b"})
        return
    result = asking.infer("numbers", asking.tensor("x", rows), parameters={"names": "a,b"})
    assert text_of(result.as_numpy("label")) == ["large", "", "small"]
    assert [bool(each) for each in text_of(result.as_numpy("error"))] == [False, True, False]
    assert np.isnan(result.as_numpy("confidence")[1])


@pytest.mark.parametrize(
    ("name", "values", "codes", "told"),
    [
        ("nobody", texts("a"), ("404", "NOT_FOUND"), "no route and no model"),
        ("default", texts(*"a" * 41), ("400", "INVALID_ARGUMENT"), "from 1 to 40"),
        ("default", np.zeros((1, 2), np.float32), ("400", "INVALID_ARGUMENT"), "`names`"),
        ("default", np.zeros((0, 2), np.float32), ("400", "INVALID_ARGUMENT"), "0 rows"),
    ],
)
def test_mistakes_are_told(asking: Asking, name: str, values: Any, codes: tuple[str, str], told: str) -> None:
    with pytest.raises(Refused, match=told) as refused:
        asking.infer(name, asking.tensor("text", values))
    assert codes[0] in refused.value.status() or codes[1] in refused.value.status()  # type: ignore[attr-defined]
    with pytest.raises(Refused, match="key is needed"):
        asking.client.infer("default", [asking.tensor("text", texts("a"))])


def test_time_limits_of_both_kinds(asking: Asking) -> None:
    row, start = asking.tensor("text", texts("a")), time.monotonic()
    with pytest.raises(Refused) as late:
        asking.infer("slow", row, timeout=200_000)  # microseconds, a parameter of the protocol
    assert any(code in late.value.status() for code in ("504", "DEADLINE_EXCEEDED"))  # type: ignore[attr-defined]
    if not asking.is_http:
        with pytest.raises(Refused, match=r"(?i)time is over|deadline"):
            asking.infer("slow", row, client_timeout=0.2)
    assert time.monotonic() - start < 4.0


def test_a_model_by_name(asking: Asking) -> None:
    result = asking.infer("words", asking.tensor("text", texts("ab")))
    answered = result.get_response(as_json=True) if not asking.is_http else result.get_response()
    selected = answered["parameters"]["selected_model"]
    assert (selected if asking.is_http else selected["string_param"]) == "words"


def test_the_asynchronous_clients(gateway: ServerHandle) -> None:
    async def ask(library: Any, port: int) -> list[str]:
        client = library.InferenceServerClient(f"127.0.0.1:{port}")
        try:
            given = library.InferInput("text", [1], "BYTES")
            given.set_data_from_numpy(texts("ab"))
            answers = await asyncio.gather(*(client.infer("default", [given], headers=dict(KEY)) for _ in range(20)))
            return [text for each in answers for text in text_of(each.as_numpy("label"))]
        finally:
            await client.close()

    for library, port in ((http_aio, gateway.server.port), (grpc_aio, gateway.server.grpc_port)):
        assert asyncio.run(ask(library, port or 0)) == ["short"] * 20
