"""A model server is killed and started again while the gateway serves from it: nothing fails, and it comes back slowly."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from bench import mlserver_process, triton
from bench.outage_process import Process, free_port

from rheostat.gateway.handle import ServerHandle

NEAR = "def near(rows):\n    return [('even' if len(row) % 2 == 0 else 'odd', 0.6) for row in rows]\n"
CONFIG = """
models:
  far: {{backend: inference_protocol, base_url: "{url}", model: texts, input: {{name: TEXT}}, output: PROBS,
        labels: [even, odd], cost: 10, lighter: near, timeout: 2s, load: true,
        breaker: {{failureThreshold: 3, successThreshold: 2, timeoutSeconds: 500ms}}, ramp: {{start: .1, seconds: 3}}}}
  near: {{backend: python, callable: "near_model:near", labels: [even, odd], cost: 1}}
routes:
  default: {{policy: far, deadline: 3s, fallback: {{retry: 1, lighter: true}}}}
server: {{port: 0}}
admin: {{secret: "an admin secret of some length", port: 9096}}
"""


class Seen(NamedTuple):
    """One answer: when it came, whose it is, and whether it is right."""

    at: float
    model: str
    right: bool


class Far(NamedTuple):
    """A server that can be killed, and its addresses."""

    process: Process
    urls: dict[str, str]


@pytest.fixture(params=["triton", "mlserver"])
def far(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Far]:
    folder = tmp_path
    (folder / "sleep").write_text("0")
    port, grpc_port = free_port(), free_port()
    if request.param == "triton":
        if not triton.installed():
            pytest.skip(f"Triton is not installed: {triton.WANTED}")
        process = triton.triton(folder, port, folder / "sleep", grpc_port)
    else:
        if not mlserver_process.installed():
            pytest.skip(f"MLServer is not installed: {mlserver_process.WANTED}")
        process = mlserver_process.mlserver(folder, port, grpc_port, folder / "sleep")
    process.start()
    try:
        asyncio.run(process.until_ready())
        yield Far(process, {"http": f"http://127.0.0.1:{port}", "grpc": f"grpc://127.0.0.1:{grpc_port}"})
    finally:
        process.kill()
        triton.sweep(port)


def ask(url: str, row: str) -> tuple[str, str]:
    request = urllib.request.Request(
        f"{url}/v1/predict", json.dumps({"data": row}).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10) as response:
        told = json.loads(response.read())["data"]
    return told["route_info"]["selected_model"], told["final_label"]


def status(handle: ServerHandle) -> Any:
    request = urllib.request.Request(
        f"{handle.admin_url}/admin/status", headers={"authorization": "Bearer an admin secret of some length"}
    )
    with urllib.request.urlopen(request, timeout=10) as response:
        return json.loads(response.read())["models"]["far"]


class Asking:
    """Asks again and again in the background, and keeps every answer."""

    def __init__(self, url: str) -> None:
        self.seen: list[Seen] = []
        self._url = url
        self._task = asyncio.create_task(self._ask())

    async def _ask(self) -> None:
        number = 0
        while True:
            row = "x" * (number % 7)
            model, label = await asyncio.to_thread(ask, self._url, row)
            at = asyncio.get_running_loop().time()
            self.seen.append(Seen(at, model, label == ("even" if len(row) % 2 == 0 else "odd")))
            number += 1
            await asyncio.sleep(0.01)

    async def until(self, enough: Callable[[list[str]], bool]) -> float:
        """Wait until whose answers there were from now on is enough; returns the time. A request that failed ends it."""
        loop = asyncio.get_running_loop()
        start, since = loop.time(), len(self.seen)
        while not enough([each.model for each in self.seen[since:]]):
            if self._task.done():
                self._task.result()
            assert loop.time() - start < 30.0, Counter(each.model for each in self.seen[since:])
            await asyncio.sleep(0.05)
        return loop.time()

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@pytest.mark.parametrize("over", ["http", "grpc"])
def test_requests_fall_back_while_it_is_away_and_it_comes_back_under_its_ramp(far: Far, over: str, tmp_path: Path) -> None:
    if over == "grpc":
        pytest.importorskip("grpc", reason="gRPC is not installed: pip install 'rheostat[grpc]'")
    (tmp_path / "near_model.py").write_text(NEAR)
    (tmp_path / "rheostat.yaml").write_text(CONFIG.format(url=far.urls[over]))

    async def go(handle: ServerHandle) -> None:
        asking = Asking(handle.url)
        await asking.until(lambda models: models.count("far") >= 20)
        far.process.kill()
        await asking.until(lambda models: models[-20:] == ["near"] * 20)
        assert (await asyncio.to_thread(status, handle))["breaker"] != "closed"
        far.process.start()
        await far.process.until_ready()
        back = await asking.until(lambda models: "far" in models)
        while (state := await asyncio.to_thread(status, handle))["breaker"] != "closed":
            await asyncio.sleep(0.01)
        climbing = [state["ramp"]]
        while climbing[-1] < 1.0:
            await asyncio.sleep(0.05)
            climbing.append((await asyncio.to_thread(status, handle))["ramp"])
        end = asyncio.get_running_loop().time()
        await asking.until(lambda models: models[-20:] == ["far"] * 20)
        await asking.stop()
        between = Counter(each.model for each in asking.seen if back <= each.at < end)
        assert between["near"] > 0, "all of its traffic came back at once"
        assert climbing == sorted(climbing)
        assert climbing[0] < 0.9
        assert all(each.right for each in asking.seen)

    with ServerHandle(str(tmp_path / "rheostat.yaml")) as handle:
        asyncio.run(go(handle))
