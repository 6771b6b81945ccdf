"""Some hundred streams with everything that goes wrong in them, through a whole gateway: the bench's laws, from one seed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from bench import stream_faults
from bench.stream_script import KINDS, asked, script

from rheostat.gateway.handle import ServerHandle


def test_streams_of_every_kind_never_lie(tmp_path: Path) -> None:
    async def main() -> list[str]:
        async with stream_faults.Models("tests") as models:
            path = tmp_path / "rheostat.yaml"
            path.write_text(stream_faults.CONFIG.format(url=models.url, more=stream_faults.MORE))
            handle = ServerHandle(str(path))
            await asyncio.to_thread(handle.start)
            try:
                found = await stream_faults.run(models, handle.url, range(400), 48)
            finally:
                await asyncio.to_thread(handle.stop)
            records = stream_faults.records_of(tmp_path / "records.jsonl", len(found))
            result = stream_faults.judged(models, found, records)
            assert {kind for kind, _ in result.counts} >= set(KINDS)
            assert {"complete by a", "complete by b", "broken off, told", "the client left"} <= {e for _, e in result.counts}
            return result.broken

    assert asyncio.run(main()) == []


@pytest.mark.parametrize("kind", ["whole", "one completion"])
def test_a_law_is_broken_by_what_breaks_it(kind: str) -> None:
    seed = next(str(number) for number in range(99) if asked(str(number)) == (1, False, False))
    said = script(seed, "a", asked(seed), kind)
    body = said.sent.partition(b"\r\n\r\n")[2] if kind == "one completion" else b""
    got = stream_faults.Got("at once", 200, {}, b"data: [DONE]\n\n", ended=True)
    broken = list(stream_faults.broken_laws(stream_faults.Told(got, asked(seed), {"a": said}, [])))
    assert any("another" in law for law in broken), body
    assert "it has 0 records" in broken
