"""The faulty upstream does what its script says, and tells what it saw."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import msgspec
import pytest

from rheostat.testing import FaultyUpstream
from rheostat.testing import step as do


def run(main: Callable[[FaultyUpstream, aiohttp.ClientSession], Awaitable[Any]], *steps: do.Step) -> FaultyUpstream:
    """Drive `main` against an upstream of these steps, within ten seconds."""

    async def whole() -> FaultyUpstream:
        async with FaultyUpstream(*steps) as upstream, aiohttp.ClientSession() as session, asyncio.timeout(10):
            await main(upstream, session)
        return upstream

    return asyncio.run(whole())


def test_steps_are_used_in_order_and_the_last_one_repeats() -> None:
    async def main(upstream: FaultyUpstream, session: aiohttp.ClientSession) -> None:
        seen = []
        for _ in range(5):
            async with session.post(upstream.url, json={"data": "x"}) as response:
                seen.append(response.status)
        assert seen == [503, 503, 200, 429, 429]

    steps = do.read_steps([{"do": "status", "code": 503, "times": 2}, {"do": "ok"}, {"do": "status", "code": 429}])
    upstream = run(main, *steps)
    assert [call.number for call in upstream.calls] == [0, 1, 2, 3, 4]
    assert upstream.calls[0].text == "x"
    assert upstream.most_running == 1


@pytest.mark.parametrize(
    "written",
    [[{"do": "explode"}], [{"do": "ok", "bodi": "x"}], [{"do": "ok", "times": 0}], [{"do": "score"}], {"do": "ok"}],
)
def test_unknown_words_are_refused(written: Any) -> None:
    with pytest.raises(msgspec.ValidationError):
        do.read_steps(written)


def test_answers_come_in_the_words_of_the_question() -> None:
    async def ask(session: aiohttp.ClientSession, url: str, body: Any) -> Any:
        async with session.post(url, json=body) as response:
            return json.loads(await response.text())

    async def main(upstream: FaultyUpstream, session: aiohttp.ClientSession) -> None:
        assert await ask(session, upstream.url, {"data": "x"}) == {"label": "A", "output": "A"}
        chat = await ask(session, upstream.url, {"messages": [{"role": "user", "content": "x"}]})
        assert chat["choices"][0]["message"]["content"] == "A"
        v2 = await ask(session, f"{upstream.url}/v2/models/m/infer", {"inputs": []})
        assert v2["outputs"][0]["data"] == ["A"]
        upstream.script(do.Score(label="x", confidence=math.nan))
        assert math.isnan((await ask(session, upstream.url, {"data": "x"}))["confidence"])
        upstream.script(do.Scores(values={"x": 0.8, "y": 0.2}))
        assert await ask(session, upstream.url, {"data": "x"}) == {"label": "x", "scores": {"x": 0.8, "y": 0.2}}
        upstream.script(do.EchoSum(raise_if_fill=-1))
        assert (await ask(session, upstream.url, {"data": {"vector": [1, 2]}}))["output"] == {"y": 3}
        assert "error" in await ask(session, upstream.url, {"data": {"vector": [-1, 2]}})
        upstream.script(do.EchoId())
        assert (await ask(session, upstream.url, {"data": "number 42"}))["label"] == "42"
        upstream.script(do.Raw(body="[0.9, ]"))
        async with session.post(upstream.url, json={}) as response:
            assert await response.read() == b"[0.9, ]"

    run(main, do.Ok(body="A"))


@pytest.mark.parametrize("step", [do.Reset(), do.ResetAfterBody(), do.Garbage(), do.Half()])
def test_broken_connections_are_broken(step: do.Step) -> None:
    async def main(upstream: FaultyUpstream, session: aiohttp.ClientSession) -> None:
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            async with session.post(upstream.url, json={"data": "x"}) as response:
                await response.read()
        async with session.post(upstream.url, json={"data": "x"}) as response:
            assert response.status == 200

    upstream = run(main, step, do.Ok())
    assert len(upstream.calls) == 2
    assert bool(upstream.calls[0].body) is not isinstance(step, do.Reset)


def test_a_reset_on_a_connection_that_is_kept_comes_before_the_request_is_read() -> None:
    async def main(upstream: FaultyUpstream, session: aiohttp.ClientSession) -> None:
        async with session.post(upstream.url, json={}) as response:
            await response.read()
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            async with session.post(upstream.url, json={}) as response:
                await response.read()

    assert [bool(call.body) for call in run(main, do.Ok(), do.Reset()).calls] == [True, False]


def test_a_client_that_leaves_is_noticed() -> None:
    async def main(upstream: FaultyUpstream, session: aiohttp.ClientSession) -> None:
        with pytest.raises(TimeoutError):
            await session.post(upstream.url, json={}, timeout=aiohttp.ClientTimeout(total=0.1))
        await asyncio.sleep(0.1)
        assert upstream.running == 0
        call = upstream.calls[0]
        assert call.aborted is not None
        assert 0.05 < call.aborted - call.at < 5.0

    run(main, do.Hang())


@pytest.mark.parametrize("then", ["end", "reset", "error_event"])
def test_streams_end_as_told(then: Any) -> None:
    async def main(upstream: FaultyUpstream, session: aiohttp.ClientSession) -> None:
        got = b""
        async with session.post(upstream.url, json={"messages": [], "stream": True}) as response:
            assert response.content_type == "text/event-stream"
            try:
                async for piece in response.content.iter_any():
                    got += piece
            except (aiohttp.ClientError, ConnectionError):
                assert then == "reset"
            else:
                assert then != "reset"
        assert got.count(b'"content"') == 2
        assert (b"[DONE]" in got) is (then == "end")
        assert (b'"error"' in got) is (then == "error_event")

    run(main, do.Stream(chunks=("one", "two"), then=then))


def test_an_answer_is_streamed_when_it_is_asked_for_as_a_stream() -> None:
    async def main(upstream: FaultyUpstream, session: aiohttp.ClientSession) -> None:
        async with session.post(upstream.url, json={"messages": [], "stream": True}) as response:
            assert (await response.read()).endswith(b"[DONE]\n\n")

    run(main, do.Ok(body="A"))


def test_slow_answers_are_whole() -> None:
    async def main(upstream: FaultyUpstream, session: aiohttp.ClientSession) -> None:
        for _ in range(2):
            async with session.post(upstream.url, json={}) as response:
                assert json.loads(await response.read())["label"] == "ok"

    run(main, do.Drip(gap=0.001), do.SlowClose(close_after=0.1))


def test_health_checks_are_not_calls() -> None:
    async def main(upstream: FaultyUpstream, session: aiohttp.ClientSession) -> None:
        for healthy in (True, False):
            upstream.healthy = healthy
            async with session.get(f"{upstream.url}/health") as response:
                assert response.status == (200 if healthy else 503)

    upstream = run(main)
    assert (len(upstream.checks), upstream.calls) == (2, [])


def test_calls_at_a_time_are_counted() -> None:
    async def main(upstream: FaultyUpstream, session: aiohttp.ClientSession) -> None:
        answers = await asyncio.gather(*(session.post(upstream.url, json={}) for _ in range(7)))
        assert {answer.status for answer in answers} == {200}

    upstream = run(main, do.Ok(delay=0.1))
    assert upstream.most_running == 7
    assert {call.concurrent for call in upstream.calls} == set(range(1, 8))
