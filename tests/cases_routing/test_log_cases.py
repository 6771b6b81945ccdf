"""What the route log says of a decision, and what an error says of its attempts."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rheostat.errors import NoAnswer
from rheostat.gateway.handle import ServerHandle
from rheostat.testing import FaultyUpstream
from rheostat.testing.step import Score, Status
from tests.cases_routing.routed import NO_LADDER, log, routed, write

POLICY = {
    "chain": [
        {
            "rules": [
                {
                    "name": "long text",
                    "when": "text.size() > 3",
                    "use": {"cascade": {"stages": ["small", "big", "last"], "threshold": 0.8, "max_escalations": 2}},
                }
            ]
        },
        "last",
    ]
}
SCRIPTS = {
    "small": [Score(label="x", confidence=0.41)],
    "big": [Status(code=429, headers={"retry-after": "20"})],
    "spare": [Status(code=500)],
    "last": [Score(label="z", confidence=0.93)],
}
MODELS = {"big": {"peers": ["spare"]}, "spare": {"max_input": 1}, "last": {"version": "7"}}


def test_case_fifteen_one_row_tells_the_whole_decision(tmp_path: Path) -> None:
    """O-RTE-15: a rule holds, a step is not sure enough, one model is busy, one is passed over, the last one answers."""

    async def main() -> None:
        async with routed(tmp_path, POLICY, SCRIPTS, models=MODELS) as pool:
            served = await pool.ask("a text that is long enough", request_id="the-one")
            assert (served.record.label, served.record.selected_model) == ("z", "last")
            assert pool.calls("spare") == 0
        (row,) = log(tmp_path)
        assert row["id"] == "the-one"
        assert (row["selected_model"], row["selected_version"]) == ("last", "7")
        told = json.dumps(row["steps"])
        assert "small 0.4100 < 0.8" in told
        outcomes = {each["model"]: each for each in row["outcomes"]}
        assert outcomes["small"]["prediction"]["confidence"] == 0.41
        assert outcomes["big"]["failure"]["kind"] == "rate_limited"
        assert outcomes["last"]["prediction"]["confidence"] == 0.93
        attempts = [try_ for each in row["outcomes"] for try_ in each["attempts"]]
        assert [each["model"] for each in attempts] == ["small", "big", "last"]
        assert [(each.get("failure") or {}).get("upstream_status") for each in attempts] == [None, 429, None]
        starts = [each["started_s"] for each in attempts]
        assert starts == sorted(starts)
        assert all(each["elapsed_s"] > 0.0 for each in attempts)

    asyncio.run(main())


def test_case_fifteen_a_passed_over_model_is_named_with_its_reason(tmp_path: Path) -> None:
    """O-RTE-15."""

    async def main() -> None:
        policy = {"cascade": {"stages": ["spare", "last"], "threshold": 0.8}}
        async with routed(tmp_path, policy, {name: SCRIPTS[name] for name in ("spare", "last")}, models=MODELS) as pool:
            await pool.ask("far more than a token")
        (row,) = log(tmp_path)
        (spare,) = [each for each in row["outcomes"] if each["model"] == "spare"]
        assert spare["failure"]["kind"] == "input_too_large"
        assert "passed over" in spare["failure"]["message"]
        assert not spare.get("attempts")

    asyncio.run(main())


def test_case_fifteen_the_rule_that_decided_is_in_the_row(tmp_path: Path) -> None:
    """O-RTE-15."""

    async def main() -> None:
        async with routed(tmp_path, POLICY, SCRIPTS, models=MODELS) as pool:
            await pool.ask("a text that is long enough")
        (row,) = log(tmp_path)
        assert "rule 'long text'" in json.dumps(row["steps"])
        assert "rule 'long text'" in row["reason"]

    asyncio.run(main())


def test_case_fifteen_the_final_error_shows_the_first_and_the_last_failure(tmp_path: Path) -> None:
    """O-RTE-15."""

    async def main() -> None:
        policy = {"cascade": {"stages": ["a", "b", "c"], "threshold": 0.8}}
        scripts = {"a": [Status(code=500)], "b": [Status(code=429)], "c": [Status(code=503)]}
        async with routed(tmp_path, policy, scripts, fallback=NO_LADDER) as pool:
            served = await pool.ask()
            assert isinstance(served.error, NoAnswer)
            told = str(served.error)
            places = [told.index(word) for word in ("a: upstream_error 500", "b: rate_limited 429", "c: ")]
            assert places == sorted(places)
            assert told in str(served.record.error)

    asyncio.run(main())


@contextmanager
def upstream(*steps: Score | Status) -> Iterator[str]:
    """A scripted model server in a thread of its own; gives its URL."""
    started, url, loop = threading.Event(), [""], asyncio.new_event_loop()
    stop = asyncio.Event()

    async def main() -> None:
        async with FaultyUpstream(*steps) as server:
            url[0] = server.url
            started.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(main(),), daemon=True)
    thread.start()
    started.wait()
    try:
        yield url[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


def test_case_fifteen_the_response_carries_id_model_and_version_and_so_does_an_error_its_id(tmp_path: Path) -> None:
    """O-RTE-15, through a real gateway."""
    with upstream(Score(label="x", confidence=0.9), Status(code=500)) as url:
        config = {
            "models": {"a": {"backend": "http", "url": f"{url}/predict", "version": "3"}},
            "routes": {"default": {"policy": "a", "fallback": NO_LADDER}},
            "server": {"port": 0},
        }
        with ServerHandle(write(tmp_path, config)) as gateway:
            replies = []
            for number in range(2):
                connection = http.client.HTTPConnection("127.0.0.1", gateway.server.port, timeout=20)
                headers = {"content-type": "application/json", "x-request-id": f"mine-{number}"}
                connection.request("POST", "/v1/predict", json.dumps({"data": "x"}), headers)
                response = connection.getresponse()
                replies.append((response.status, dict(response.getheaders()), json.loads(response.read())))
                connection.close()
    (good, head, body), (bad, error_head, error) = replies
    assert (good, body["request_id"], head["x-rheostat-request-id"]) == (200, "mine-0", "mine-0")
    assert (head["x-rheostat-model"], head["x-rheostat-version"]) == ("a", "3")
    assert (bad, error["request_id"], error_head["x-rheostat-request-id"]) == (502, "mine-1", "mine-1")
    assert "a: upstream_error 500" in error["error"]["message"]
