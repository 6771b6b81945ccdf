"""Posting results: signed, to one address, again until they are taken."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rheostat.clock import SystemClock
from rheostat.errors import ModelError, NoAnswer
from rheostat.results import table
from rheostat.results.later import Later
from rheostat.results.result import Reply, Result, Waiting, write_reply
from rheostat.results.settings import ResultSettings, WebhookSettings
from rheostat.results.store import Store
from rheostat.results.webhook import Webhook, body_of, signature
from rheostat.types import Prediction, RouteRecord

SECRET = "a secret of some length"


class Receiver:
    """A real HTTP server that answers with `statuses` in turn (the last one repeats) and keeps what came."""

    def __init__(self, *statuses: int, delay_s: float = 0.0) -> None:
        self.statuses = statuses
        self.delay_s = delay_s
        self.came: list[tuple[dict[str, str], bytes]] = []
        self.elsewhere = 0

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                fields = dict(line.split(": ", 1) for line in head[1:] if line)
                headers = {name.lower(): value for name, value in fields.items()}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                if not head[0].startswith("POST /hook"):
                    self.elsewhere += 1
                status = self.statuses[min(len(self.came), len(self.statuses) - 1)]
                self.came.append((headers, body))
                await asyncio.sleep(self.delay_s)
                writer.write(f"HTTP/1.1 {status} X\r\nlocation: /stolen\r\ncontent-length: 0\r\n\r\n".encode())
                await writer.drain()

    @contextlib.asynccontextmanager
    async def up(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
        finally:
            server.close()


def hook(url: str, **more: Any) -> Webhook:
    return Webhook(WebhookSettings(url=url, secret=SECRET, **more))


RESULT = Result(
    id="k", state="done", request_id="r", route="default", tenant="t", created=1.0, finished=2.0, attempts=3,
    record=RouteRecord(id="r", wall=1.0, route="default", status="ok", selected_model="a", selected_version="7"),
    prediction=Prediction("yes", 0.9, {"yes": 0.9, "no": 0.1}),
)  # fmt: skip


def test_a_post_is_signed_and_says_what_came_of_the_promise() -> None:
    async def main() -> Receiver:
        receiver = Receiver(204)
        async with receiver.up() as url:
            one = hook(url, header="x-shop-signature")
            assert await one.post(RESULT)
            assert one.status() == {"delivered": 1, "failed": 0, "last_error": None}
            await one.aclose()
        return receiver

    headers, body = asyncio.run(main()).came[0]
    mac = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    assert headers["x-shop-signature"] == f"sha256={mac}" == signature(SECRET, body)
    assert SECRET not in str(headers) + body.decode()
    assert json.loads(body) == {
        "id": "k", "state": "done", "request_id": "r", "route": "default", "tenant": "t", "created": 1.0, "finished": 2.0,
        "attempts": 3, "label": "yes", "confidence": 0.9, "scores": {"yes": 0.9, "no": 0.1}, "selected_model": "a",
        "selected_version": "7",
    }  # fmt: skip


def test_a_promise_that_could_not_be_kept_is_posted_with_its_error() -> None:
    def failed(error: Any) -> Any:
        result = Result(id="k", state="failed", request_id="r", route="default", error=error)
        return json.loads(body_of(result))

    refused = failed(ModelError("input_refused", "secret details"))
    assert (refused["error_type"], refused["status"], "label" in refused) == ("input_refused", 400, False)
    assert "secret details" not in str(refused)
    assert failed(NoAnswer("nobody", 504))["status"] == 504


@pytest.mark.parametrize("status", [301, 302, 307, 308, 400, 410, 500])
def test_nothing_but_success_is_success_and_no_redirect_is_followed(status: int) -> None:
    async def main() -> None:
        receiver = Receiver(status)
        async with receiver.up() as url:
            one = hook(url)
            assert not await one.post(RESULT)
            assert (len(receiver.came), receiver.elsewhere) == (1, 0)
            assert one.status()["last_error"] == f"it answered {status}"
            await one.aclose()

    asyncio.run(main())


def test_a_side_that_is_slow_or_away_has_not_taken_it_and_the_address_is_not_shown() -> None:
    async def main() -> None:
        receiver = Receiver(200, delay_s=2.0)
        async with receiver.up() as url:
            one = hook(url, timeout=0.1)  # type: ignore[arg-type]
            assert not await one.post(RESULT)
            await one.aclose()
        away = hook("http://127.0.0.1:9/hook?token=hidden")
        assert not await away.post(RESULT)
        assert "hidden" not in str(away.status())
        assert "127.0.0.1" not in str(away.status())
        await away.aclose()

    asyncio.run(main())


def test_results_are_posted_again_until_they_are_taken_also_by_the_next_process(tmp_path: Path) -> None:
    async def process(url: str, until_taken: bool) -> None:
        store = Store(str(tmp_path / "results.sqlite"), SystemClock())
        webhook = hook(url)
        made = Later(
            store, ResultSettings(path="x"), SystemClock(), never, lambda _: {}, webhook=webhook,
            first_pause_s=0.02, longest_pause_s=0.1, look_s=0.02,
        )  # fmt: skip
        if not until_taken:
            waiting = Waiting(id="k", request_id="r", route="default", tenant=None, created=1.0, data="x")
            reply = write_reply(Reply(RESULT.record, RESULT.prediction))  # type: ignore[arg-type]
            await store.run(lambda db: table.add(db, waiting, b"", 1.0, 1e12, 10))
            await store.run(lambda db: table.finish(db, "k", "done", reply, 2.0, 1e12, post=True))
        made.start()
        while webhook.failed + webhook.delivered < (1 if until_taken else 2):
            await asyncio.sleep(0.01)
        while until_taken and made.counts.get("posting", 1):
            await asyncio.sleep(0.01)
        await made.aclose()

    async def never(waiting: Waiting) -> Reply:
        raise AssertionError(waiting)

    async def main() -> None:
        receiver = Receiver(500, 503, 200)
        async with receiver.up() as url:
            await process(url, False)
            await process(url, True)
            assert len(receiver.came) == 3
            assert len({body for _, body in receiver.came}) == 1

    asyncio.run(main())


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"url": "ftp://x", "secret": SECRET}, "`url`"),
        ({"url": "https://x/", "secret": "short"}, "openssl rand"),
        ({"url": "https://x/", "secret": SECRET, "header": "x y"}, "`header`"),
        ({"url": "https://x/", "secret": SECRET, "timeout": 0.0}, "`timeout`"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        WebhookSettings(**wrong)


def test_secrets_are_not_in_the_settings_text() -> None:
    settings = ResultSettings(path="x", webhook=WebhookSettings(url="https://u:pw@x/?k=v", secret=SECRET))
    assert SECRET not in repr(settings)
    assert "pw" not in repr(settings)
    with pytest.raises(ValueError, match="without `path`"):
        ResultSettings(webhook=WebhookSettings(url="https://x/", secret=SECRET))
