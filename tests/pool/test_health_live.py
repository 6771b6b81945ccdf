"""Health checks through a router on a config: URLs, keys, reload, status, metrics, and nothing left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from rheostat import Router
from rheostat.errors import ConfigError

CONFIG = """
models:
  a:
    backend: http
    url: http://127.0.0.1:PORT/predict
    api_key: not-for-everybody
    labels: ["yes", "no"]
    peers: [b]
    version: "VERSION"
    health: {interval: 0.02, timeout: 1s, unhealthy: 3, healthy: 2, url: "URL"}
  b: {backend: python, callable: "health_models:no", labels: ["yes", "no"]}
routes: {default: {policy: a}}
"""


class Page:
    """An HTTP server that answers every GET with a status and keeps the heads of the requests."""

    def __init__(self) -> None:
        self.status = 200
        self.heads: list[str] = []

    async def __aenter__(self) -> Page:
        self.server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *ended: object) -> None:
        self.server.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode().lower())
            writer.write(f"HTTP/1.1 {self.status} X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode())
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


async def until(met: Callable[[], bool]) -> None:
    async with asyncio.timeout(20.0):
        while not met():
            await asyncio.sleep(0.005)


def written(folder: Path, port: int, url: str, version: str = "1") -> str:
    (folder / "health_models.py").write_text("def no(rows):\n    return [('no', 1.0) for _ in rows]\n")
    path = folder / "rheostat.yaml"
    path.write_text(CONFIG.replace("PORT", str(port)).replace("URL", url).replace("VERSION", version))
    return str(path)


def test_a_page_that_says_no_takes_the_model_out_and_yes_brings_it_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with Page() as page:
            router = await Router.open(written(tmp_path, page.port, f"http://127.0.0.1:{page.port}/healthz"))
            told = lambda: router.status()["models"]["a"]  # noqa: E731
            await until(lambda: len(page.heads) >= 3)
            assert all(head.startswith("get /healthz ") for head in page.heads)
            assert all("authorization: bearer not-for-everybody" in head for head in page.heads)
            assert (told()["health"], told()["ramp"], told()["why"]) == ("healthy", 1.0, "")
            page.status = 503
            await until(lambda: told()["ejected"])
            served = await router.apredict("x")
            assert served.record.selected_model == "b"
            forced = await router.serve(router.request("x", force_model="a"))
            assert "it is unhealthy: " in str(forced.record.outcomes)
            assert "answered 503" in told()["why"]
            shown = router.metrics.render().decode()
            assert 'rheostat_healthy{model="a"} 0' in shown
            assert 'rheostat_ramp{model="a"} 0' in shown
            page.status = 200
            await until(lambda: told()["health"] == "healthy")
            assert not told()["ejected"]
            assert 0.05 <= told()["ramp"] < 0.5
            await router.aclose()
            count = len(page.heads)
            await asyncio.sleep(0.1)
            assert len(page.heads) <= count + 1, "nobody checks any more"

    asyncio.run(main())


def test_a_key_goes_nowhere_else_and_a_reload_moves_the_checks(tmp_path: Path) -> None:
    async def main() -> None:
        async with Page() as page, Page() as other:
            router = await Router.open(written(tmp_path, 1, f"http://127.0.0.1:{page.port}/"))
            await until(lambda: len(page.heads) >= 2)
            assert not any("authorization" in head for head in page.heads)
            written(tmp_path, 1, f"http://127.0.0.1:{other.port}/", "2")
            assert await router.reload()
            count = len(page.heads)
            await until(lambda: len(other.heads) >= 3)
            assert len(page.heads) <= count + 1, "only what was under way"
            await router.aclose()

    asyncio.run(main())


def test_a_check_needs_something_to_check(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"models\.a\.health\.interval: there is nothing to check: set `health.url` or"):
        asyncio.run(Router.open(written(tmp_path, 1, "")))
