"""Evaluation of models behind HTTP: a bounded number of calls, patience with a busy server, errors kept by row."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

from aiohttp import web

from rheostat.config import load_config
from rheostat.jobs import Evaluation, LabelledSet, Part, Work, evaluate


class Server:
    """A real HTTP server that counts how many requests it has at a time."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.now = self.most = 0

    async def answer(self, request: web.Request) -> web.Response:
        text = (await request.json())["data"]
        self.asked[text] += 1
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.002)
        self.now -= 1
        if "busy" in text and self.asked[text] == 1:
            return web.Response(status=429, headers={"retry-after": "0"})
        if "shaky" in text and self.asked[text] < 3:
            return web.Response(status=503)
        if "refused" in text:
            return web.Response(status=400)
        return web.json_response({"label": "a", "confidence": 0.75})


async def evaluated(folder: Path, server: Server, rows: list[str], concurrency: int) -> Evaluation:
    app = web.Application()
    app.router.add_post("/classify", server.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
    config = folder / "rheostat.yaml"
    config.write_text(
        f"models: {{far: {{backend: http, url: 'http://127.0.0.1:{port}/classify', cost: 2, labels: [a, b]}}}}\n"
        "routes: {default: {policy: far}}\n",
        encoding="utf-8",
    )
    data = folder / "rows.jsonl"
    data.write_text("\n".join(json.dumps({"text": text, "label": "a"}) for text in rows), encoding="utf-8")
    try:
        work = Work(concurrency=concurrency)
        return await evaluate(load_config(str(config)), LabelledSet([Part(data)]), folder / "out.parquet", work=work)
    finally:
        await runner.cleanup()


def test_calls_are_bounded_and_each_row_is_asked_once(tmp_path: Path) -> None:
    server = Server()
    rows = [f"row {n}" for n in range(60)]
    done = asyncio.run(evaluated(tmp_path, server, rows, concurrency=4))
    assert done.complete
    assert server.asked == Counter(rows)
    assert server.most == 4
    assert [done.table.request(row).data for row in range(60)] == rows
    assert done.table.model("far").latency_s.min() >= 0.002


def test_a_busy_or_shaky_server_is_asked_again_and_a_refusal_is_the_row_s_own(tmp_path: Path) -> None:
    server = Server()
    rows = ["fine", "busy", "shaky", "refused"]
    done = asyncio.run(evaluated(tmp_path, server, rows, concurrency=2))
    assert server.asked == {"fine": 1, "busy": 2, "shaky": 3, "refused": 1}
    assert done.failures == {"far": {"input_refused": 1}}
    assert done.table.answered("far").tolist() == [True, True, True, False]
    costs = dict(zip(rows, done.table.model("far").cost.tolist(), strict=True))
    assert costs["fine"] == 2.0
    assert costs["shaky"] == 6.0
