"""Chat and plain HTTP models against a real server in the same event loop, its faults included."""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from email.utils import formatdate
from typing import Any

import pytest
from aiohttp import web

from rheostat.backends.http import HttpModel
from rheostat.backends.openai import OpenAIModel
from rheostat.backends.upstream import parse_retry_after
from rheostat.errors import ConfigError, ModelError
from rheostat.pool.backend import RemoteBackend, Reply
from rheostat.types import Prediction

SECRET = "sk-very-secret/key+1"
LABELS = ("positive", "negative")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler):
    app = web.Application(client_max_size=1 << 26)
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def ask(handler: Handler, rows: list[Any], *, kind: str = "openai", timeout_s: float = 5.0, **settings: Any) -> list[Reply]:
    async def go() -> list[Reply]:
        async with serving(handler) as root:
            backend = opened(root, kind, settings)
            try:
                return list(await backend.apredict(rows, timeout_s))
            finally:
                await backend.aclose()

    return asyncio.run(go())


def opened(root: str, kind: str, settings: dict[str, Any]) -> RemoteBackend:
    if kind == "openai":
        model: Any = OpenAIModel(**{"base_url": f"{root}/v1", "model": "m", "labels": LABELS, "api_key": SECRET, **settings})
    else:
        model = HttpModel(**{"url": f"{root}/predict", "labels": LABELS, "api_key": SECRET, **settings})
    backend = model.open("")
    assert isinstance(backend, RemoteBackend)
    return backend


def chat(text: object, logprobs: object = None) -> dict[str, object]:
    return {"choices": [{"message": {"content": text}, "logprobs": logprobs}]}


def answering(body: object, status: int = 200, headers: dict[str, str] | None = None) -> Handler:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def handler(_: web.Request) -> web.Response:
        return web.Response(body=raw, status=status, headers=headers)

    return handler


def test_a_chat_request_is_small_cold_and_carries_key_and_time() -> None:
    seen: list[tuple[web.Request, Any]] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append((request, await request.json()))
        return web.json_response(chat(" Positive. "))

    (reply,) = ask(handler, ["great \ud800 film"], logprobs=True, extra_body={"seed": 1}, timeout_s=2.0)
    assert reply == Prediction("positive", None, None, " Positive. ")
    request, body = seen[0]
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == f"Bearer {SECRET}"
    assert 0 < int(request.headers["x-rheostat-timeout-ms"]) <= 2000
    assert body["temperature"] == 0
    assert body["max_tokens"] == 16
    assert body["logprobs"] is True
    assert body["seed"] == 1
    assert all(label in body["messages"][0]["content"] for label in LABELS)
    assert body["messages"][1]["content"] == "great \ufffd film"


def test_rows_keep_their_order_fail_alone_and_stay_within_parallel() -> None:
    running, most = 0, 0

    async def handler(request: web.Request) -> web.Response:
        nonlocal running, most
        running += 1
        most = max(most, running)
        text = (await request.json())["messages"][1]["content"]
        await asyncio.sleep(0.05 if text == "slow" else 0.01)
        running -= 1
        return (
            web.Response(status=500)
            if text == "bad"
            else web.json_response(chat("positive" if text == "slow" else "negative"))
        )

    replies = ask(handler, ["slow", "bad", "x", {"a": 1}, {"text": "y"}], parallel=2)
    assert [reply.label if isinstance(reply, Prediction) else reply.kind for reply in replies] == [
        "positive", "upstream_error", "negative", "negative", "negative"
    ]  # fmt: skip
    assert most == 2


def test_confidence_from_token_chances() -> None:
    tokens = [
        {
            "token": "positive",
            "logprob": -0.5108256,
            "top_logprobs": [
                {"token": "positive", "logprob": -0.5108256},
                {"token": " Negative", "logprob": -1.609438},
                {"token": "maybe", "logprob": -2.0},
            ],
        }
    ]
    (reply,) = ask(answering(chat("positive", {"content": tokens})), ["x"], logprobs=True)
    assert isinstance(reply, Prediction)
    assert reply.scores == pytest.approx({"positive": 0.75, "negative": 0.25})
    assert reply.confidence == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "input_refused"), (422, "input_refused"), (401, "misconfigured"), (403, "misconfigured"),
        (404, "misconfigured"), (405, "misconfigured"), (302, "misconfigured"), (408, "timeout"), (409, "upstream_error"),
        (413, "input_too_large"), (429, "rate_limited"), (500, "upstream_error"), (502, "upstream_error"),
        (503, "upstream_error"), (504, "upstream_error"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind_of_model", ["openai", "http"])
def test_every_status_has_its_kind_and_no_secret_is_echoed(status: int, kind: str, kind_of_model: str) -> None:
    headers = {"location": "http://127.0.0.1:1/"} if status == 302 else {}
    body = {"error": {"message": f"because of {SECRET} and Bearer {SECRET}"}}
    (reply,) = ask(answering(body, status, headers), ["x"], kind=kind_of_model)
    assert isinstance(reply, ModelError)
    assert reply.kind == kind
    assert reply.upstream_status == status
    assert "because of ***" in str(reply)
    assert SECRET not in str(reply)


def test_a_context_error_is_known_by_its_code_not_by_words() -> None:
    by_code = answering({"error": {"code": "context_length_exceeded", "message": "x"}}, 400)
    by_words = answering({"error": {"message": "context_length_exceeded, too long"}}, 400)
    assert ask(by_code, ["x"])[0].kind == "input_too_large"  # type: ignore[union-attr]
    assert ask(by_words, ["x"])[0].kind == "input_refused"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"{",
        b"[" * 100_000,
        b"\xff\xfe",
        {},
        [],
        None,
        {"choices": []},
        {"choices": [None]},
        {"choices": [{"message": None}]},
        {"error": {"message": "inside 200"}},
        chat(""),
        chat("  "),
        chat(None),
        chat(["positive"]),
        chat("perhaps"),
        chat("positively"),
    ],
)
def test_a_broken_chat_answer_is_bad_output(body: object) -> None:
    (reply,) = ask(answering(body), ["x"])
    assert isinstance(reply, ModelError)
    assert reply.kind == "bad_output"


@pytest.mark.parametrize("odd", ["NaN", "Infinity", "-Infinity", "null", '""', '"high"', "1.7", "-0.2", "[]", "1e999"])
def test_an_odd_confidence_is_dropped(odd: str) -> None:
    body = b'{"label": "positive", "confidence": %s}' % odd.encode()
    assert ask(answering(body), ["x"], kind="http") == [Prediction("positive", None, spoilt=odd != "null")]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"label": "positive", "confidence": 0.8}, Prediction("positive", 0.8)),
        ({"label": "positive"}, Prediction("positive")),
        (
            {"values": {"positive": 0.25, "negative": 0.75}},
            Prediction("negative", 0.75, {"positive": 0.25, "negative": 0.75}),
        ),
        (
            {"label": "positive", "confidence": 0.7, "scores": {"positive": 0.8, "negative": 0.2}, "output": 1, "more": 2},
            Prediction("positive", 0.7, {"positive": 0.8, "negative": 0.2}, 1),
        ),
        (chat("negative"), Prediction("negative", None, None, "negative")),
    ],
)
def test_the_forms_of_a_plain_answer(body: object, expected: Prediction) -> None:
    assert ask(answering(body), ["x"], kind="http") == [expected]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        {},
        [],
        {"label": ""},
        {"label": []},
        {"label": None, "confidence": 1.0},
        {"label": "junk"},
        {"text": "", "confidence": 1},
        {"values": {}},
        {"values": {"positive": float("nan"), "negative": 0.5}},
        {"values": [1]},
        {"choices": []},
    ],
)
def test_an_empty_or_foreign_plain_answer_is_bad_output(body: object) -> None:
    (reply,) = ask(answering(body), ["x"], kind="http")
    assert isinstance(reply, ModelError)
    assert reply.kind == "bad_output"


@pytest.mark.parametrize("label", [0, False, 1, True])
def test_the_names_of_classes_may_be_numbers_or_truth_values(label: object) -> None:
    replies = ask(answering({"label": label, "confidence": 0.9}), ["x"], kind="http", labels=())
    assert replies == [Prediction(str(label), 0.9)]


def test_a_plain_request_carries_data_meta_and_headers() -> None:
    seen: list[Any] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append((await request.json(), request.headers))
        return web.json_response({"label": "positive"})

    rows: list[Any] = ["hi", {"a": float("nan"), "b": "\ud800"}, {"a": float("nan")}]
    ask(handler, rows, kind="http", meta={"source": "r"}, headers={"X-Team": "blue"}, parallel=1)
    assert [body["data"] for body, _ in seen] == ["hi", {"a": None, "b": "\ud800"}, {"a": None}]
    assert all(body["meta"] == {"source": "r"} for body, _ in seen)
    assert all(headers["x-team"] == "blue" for _, headers in seen)


def test_what_json_cannot_carry_is_refused() -> None:
    (reply,) = ask(answering({"label": "positive"}), [object()], kind="http")
    assert isinstance(reply, ModelError)
    assert reply.kind == "input_refused"


def test_time_limits_and_cancellation_close_the_connection() -> None:
    gone: list[str] = []

    async def handler(_: web.Request) -> web.Response:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            gone.append("closed")
            raise
        return web.Response()

    async def go() -> None:
        app = web.Application()
        app.router.add_post("/{path:.*}", handler)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        backend = opened(f"http://127.0.0.1:{runner.addresses[0][1]}", "openai", {})
        for limit in (0.05, 0.0, -1.0):
            (reply,) = await backend.apredict(["x"], limit)
            assert isinstance(reply, ModelError)
            assert reply.kind == "timeout"
        task = asyncio.create_task(backend.apredict(["x"], float("inf")))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0.1)
        assert gone == ["closed", "closed"]
        await backend.aclose()
        await runner.cleanup()

    asyncio.run(go())


def test_connection_faults() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound and not listening: refused
        closed = f"http://127.0.0.1:{held.getsockname()[1]}"

        async def reset(request: web.Request) -> web.Response:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()

        async def cut(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"content-length": "100"})
            await response.prepare(request)
            await response.write(b"{")
            assert request.transport is not None
            request.transport.abort()
            return response

        async def go() -> list[Any]:
            found = []
            async with serving(reset) as resetting, serving(cut) as cutting:
                tls = resetting.replace("http://", "https://")
                for root in (closed, resetting, cutting, tls, "http://no-such-host.invalid"):
                    backend = opened(root, "http", {"url": f"{root}/p?key={SECRET}"})
                    found += await backend.apredict(["x"], 5.0)
                    await backend.aclose()
            return found

        replies = asyncio.run(go())
    assert [reply.kind for reply in replies] == ["connection", "reset", "reset", "connection", "connection"]
    assert "ssl:default" not in " ".join(map(str, replies))  # the library's word, also where there is no TLS
    assert not any(SECRET in str(reply) for reply in replies)


def test_connections_are_kept_and_a_second_loop_gets_its_own() -> None:
    ports: list[int] = []

    async def handler(request: web.Request) -> web.Response:
        assert request.transport is not None
        ports.append(request.transport.get_extra_info("peername")[1])
        return web.json_response({"label": "positive"})

    async def go(backend: RemoteBackend | None) -> RemoteBackend:
        async with serving(handler) as root:
            backend = backend or opened(root, "http", {})
            for _ in range(3):
                await backend.apredict(["x"], 5.0)
            await backend.aclose()
            return backend

    backend = asyncio.run(go(None))
    assert len(set(ports)) == 1

    async def again() -> Reply:
        (reply,) = await backend.apredict(["x"], 5.0)
        await backend.aclose()
        return reply

    reply = asyncio.run(again())  # its server is gone: a clear failure, no "loop is closed"
    assert isinstance(reply, ModelError)
    assert reply.kind == "connection"


def test_user_and_password_of_a_url_are_sent_and_never_shown() -> None:
    seen: list[str | None] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(request.headers.get("authorization"))
        return web.Response(status=500, text=f"url was {request.url} pa55word cGE1NXdvcmQ=")

    async def go() -> Reply:
        async with serving(handler) as root:
            url = root.replace("http://", "http://user:pa55word@") + "/p"
            backend = HttpModel(url=url).open("")
            assert "pa55word" not in repr(HttpModel(url=url, api_key=SECRET))
            assert isinstance(backend, RemoteBackend)
            (reply,) = await backend.apredict(["x"], 5.0)
            await backend.aclose()
            return reply

    reply = asyncio.run(go())
    assert seen == ["Basic dXNlcjpwYTU1d29yZA=="]
    assert "pa55word" not in str(reply)
    assert "cGE1NXdvcmQ" not in str(reply)


def test_the_settings_hide_the_key_and_refuse_nonsense() -> None:
    settings = OpenAIModel(base_url="http://u:pw-secret@h/v1", model="m", api_key=SECRET, labels=LABELS)
    assert SECRET not in repr(settings)
    assert "pw-secret" not in repr(settings)
    with pytest.raises(ConfigError, match="labels"):
        OpenAIModel(base_url="http://h", model="m").open("")
    with pytest.raises(ConfigError, match="base_url") as caught:
        OpenAIModel(base_url=f"ftp://u:{SECRET}@h?k={SECRET}", model="m", labels=LABELS).open("")
    assert SECRET not in str(caught.value)
    with pytest.raises(ConfigError, match=r"(?s)top_logprobs.*parallel"):
        OpenAIModel(base_url="http://h", model="m", labels=LABELS, top_logprobs=0, parallel=0).open("")
    with pytest.raises(ConfigError, match="parallel"):
        HttpModel(url="http://h", parallel=0).open("")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        ("0", 0.0),
        ("30", 30.0),
        (" 7 ", 7.0),
        ("86400", 60.0),
        ("9" * 400, 60.0),
        ("-5", None),
        ("abc", None),
        ("1.5", None),
        ("", None),
        (formatdate(1_000_020.0, usegmt=True), 20.0),
        (formatdate(2_000_000.0, usegmt=True), 60.0),
        (formatdate(999_990.0, usegmt=True), None),
    ],
)
def test_retry_after(value: str | None, expected: float | None) -> None:
    assert parse_retry_after(value, None, 1_000_000.0, 60.0) == expected
    assert parse_retry_after(value, formatdate(1_000_000.0, usegmt=True), 5.0, 60.0) == expected


def test_retry_after_reaches_the_error() -> None:
    (reply,) = ask(answering({}, 429, {"Retry-After": "12"}), ["x"])
    assert isinstance(reply, ModelError)
    assert reply.retry_after_s == 12.0
    (reply,) = ask(answering({}, 429, {"Retry-After": "soon"}), ["x"])
    assert isinstance(reply, ModelError)
    assert reply.retry_after_s is None
