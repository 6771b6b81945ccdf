"""Streams of conversations through the gateway, with everything that can go wrong in them. `python -m bench.stream_faults`

    python -m bench.stream_faults --streams 10000            # all of them, from one seed
    python -m bench.stream_faults --only 1234                # one of them, with what was sent and received

The gateway is a process of its own. Two models stand behind it, which send what a script from the seed says (see
`bench.stream_script`): cuts at every byte, stalls, garbage, errors, odd forms; the clients read at once, slowly, byte by
byte, or leave. What the models said is read by the rules (`bench.stream_oracle`); to that every answer is held:

- a client gets what one model said, from its beginning, chunk by chunk as it was sent: nothing twice, nothing left out,
  nothing of a model that failed before;
- with `[DONE]` it is complete, and only what is complete gets it; everything else ends with an error that is told;
- a model that answers well is not replaced;
- there is one record of each, and it says the same;
- a model whose client left is stopped at once, and at the end nothing is left over.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from bench.gateway import SERVE, Server
from bench.stream_client import Got, ask
from bench.stream_laws import Told, broken_laws
from bench.stream_script import Asked, Script, asked, script
from rheostat.telemetry.jsonl import read_records
from rheostat.testing.listener import Listener
from rheostat.testing.wire import read_body, read_head, reset
from rheostat.types import RouteRecord

LIMIT_S = 1.5
CONFIG = """
task: chat
server: {{body_timeout: 10s}}
models:
  a: {{backend: chat, base_url: "{url}/a/v1", model: up-a, peers: [b], {more}}}
  b: {{backend: chat, base_url: "{url}/b/v1", model: up-b, {more}}}
routes:
  default: {{policy: a, deadline: 30s, fallback: {{retry: 1}}}}
records: {{jsonl: records.jsonl}}
"""
MORE = f"breaker: {{failureThreshold: 0}}, stream: {{first: {LIMIT_S}s, gap: {LIMIT_S}s, total: 20s}}"
_SHOWN = 20


class Models(Listener):
    """Both models: the path says which, the text of the question which stream. `ended` has when each one's connection was
    done with it, `open` how many calls run."""

    def __init__(self, seed: str) -> None:
        super().__init__("127.0.0.1", 0)
        self.seed = seed
        self.kinds: dict[str, str] = {}
        self.called: dict[tuple[int, str], Script] = {}
        self.served: set[tuple[int, str]] = set()
        self.gone: dict[tuple[int, str], float] = {}
        self.running = 0

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.read(1)
        while first:
            _, path, headers = read_head(first + await reader.readuntil(b"\r\n\r\n"))
            body = json.loads(await read_body(reader, headers))
            number, name = int(body["messages"][0]["content"]), path[1]
            said = script(f"{self.seed}/{number}", name, asked(f"{self.seed}/{number}"), self.kinds.get(name, ""))
            self.called[number, name] = said
            leaving = asyncio.ensure_future(reader.read(1))
            sending = asyncio.ensure_future(_send(said, writer))
            self.running += 1
            try:
                await asyncio.wait((leaving, sending), return_when=asyncio.FIRST_COMPLETED)
                if sending.done() and sending.exception() is None:
                    self.served.add((number, name))
                    if said.then == "reset":
                        reset(writer)
                    if said.then in ("close", "reset"):
                        return
                first = await leaving
            finally:
                self.running -= 1
                self.gone[number, name] = time.monotonic()
                sending.cancel()
                leaving.cancel()
                await asyncio.gather(sending, leaving, return_exceptions=True)


async def _send(said: Script, writer: asyncio.StreamWriter) -> None:
    at = 0
    for cut in (*(cut for cut in said.cuts if cut < said.stop), said.stop):
        if at in said.pauses:
            await asyncio.sleep(said.pauses[at])
        writer.write(said.wire[at:cut])
        await writer.drain()
        await asyncio.sleep(0.001)
        at = cut
    if said.then == "hang":
        await asyncio.Event().wait()


class Run(NamedTuple):
    """What came of a run: what each stream was told, how often what happened, and what broke a law."""

    told: dict[int, Told]
    counts: Counter[tuple[str, str]]
    broken: list[str]
    left_ms: list[float]


async def run(models: Models, url: str, numbers: Sequence[int], clients: int) -> dict[int, Got]:
    """Send the streams over so many connections at a time and return what came."""
    left, found = iter(numbers), {}
    at = urlsplit(url)

    async def one() -> None:
        kept = None
        for number in left:
            seed = f"{models.seed}/{number}"
            found[number], kept = await ask(
                str(at.hostname), at.port or 80, number, seed, body_of(number, asked(seed)), kept
            )
        if kept is not None:
            kept.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(one())
    return found


def body_of(number: int, wanted: Asked) -> bytes:
    """Return what the client of a stream asks."""
    body: dict[str, Any] = {"model": "default", "stream": True, "messages": [{"role": "user", "content": str(number)}]}
    if wanted.choices > 1:
        body["n"] = wanted.choices
    if wanted.tools:
        body["tools"] = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    if wanted.usage:
        body["stream_options"] = {"include_usage": True}
    return json.dumps(body).encode()


def judged(models: Models, found: dict[int, Got], records: dict[str, list[RouteRecord]]) -> Run:
    """Hold what came to the laws."""
    told = {}
    counts: Counter[tuple[str, str]] = Counter()
    broken: list[str] = []
    left_ms: list[float] = []
    for number, got in sorted(found.items()):
        seed = f"{models.seed}/{number}"
        scripts = {name: models.called[number, name] for name in "ab" if (number, name) in models.called}
        each = Told(got, asked(seed), scripts, records.get(f"s-{number}", []))
        told[number] = each
        kind = scripts["a"].kind if "a" in scripts else "not asked"
        counts[kind, each.end] += 1
        broken += [f"stream {number} ({kind}, {got.manner}): {law}" for law in broken_laws(each)]
        if got.left_at is not None:
            for name in scripts:
                ended = models.gone.get((number, name))
                if (number, name) in models.served and models.called[number, name].then != "hang":
                    continue
                late = (ended - got.left_at) * 1e3 if ended is not None else float("inf")
                left_ms.append(max(0.0, late))
                if late > 1_000.0:
                    broken.append(
                        f"stream {number} ({kind}, {got.manner}): its client left, {name} ran on for {late:.0f} ms"
                    )
    return Run(told, counts, broken, left_ms)


def records_of(path: Path, wanted: int) -> dict[str, list[RouteRecord]]:
    """Return the records by their id; waits until there are as many as wanted, or no more come."""
    until = time.monotonic() + 10.0
    while path.read_bytes().count(b"\n") < wanted and time.monotonic() < until:
        time.sleep(0.2)
    records: dict[str, list[RouteRecord]] = {}
    for record in read_records(path):
        if isinstance(record, RouteRecord):
            records.setdefault(record.id, []).append(record)
    return records


@contextmanager
def gateway(config: str, folder: Path) -> Iterator[Server]:
    """Serve a config in a process of its own."""
    path = folder / "rheostat.yaml"
    path.write_text(config)
    server = Server(["-c", SERVE, str(path)], "/metrics")
    try:
        yield server
    finally:
        server.stop()


def leftovers(server: Server) -> list[str]:
    """Say what runs in the gateway though nothing is asked any more."""
    lines = [line for line in server.page("/metrics").splitlines() if line.startswith("rheostat_in_flight{")]
    return [line for line in lines if not line.endswith((" 0", " 0.0"))]


def descriptors(server: Server) -> int:
    """Return how many files and connections the gateway has open."""
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


async def main_(streams: int, clients: int, seed: str, only: int | None) -> int:
    """Run, print and return the exit status."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with Models(seed) as models:
            with gateway(CONFIG.format(url=models.url, more=MORE), folder) as server:
                numbers = range(streams) if only is None else [only]
                await asyncio.to_thread(leftovers, server)
                before, began = descriptors(server), time.monotonic()
                found = await run(models, server.url, numbers, clients)
                took = time.monotonic() - began
                await asyncio.sleep(1.0)
                broken = [f"left over: {line}" for line in await asyncio.to_thread(leftovers, server)]
                if models.running > len(models.called):
                    broken.append(f"{models.running} calls still run")
                records = await asyncio.to_thread(records_of, folder / "records.jsonl", len(found))
                after = descriptors(server)
            result = judged(models, found, records)
        broken += result.broken
        if only is not None:
            show(result.told[only])
        table(result, took, before, after)
        for line in broken[:_SHOWN]:
            print(line)
        print(f"\n{len(found):,} streams, laws broken: {len(broken)}")
    return 1 if broken else 0


def show(told: Told) -> None:
    """Print one stream whole."""
    for name, said in told.scripts.items():
        print(f"{name} {said.kind}, then {said.then}, cut at {said.cuts}:\n{said.sent!r}\n")
    print(f"client ({told.got.manner}) got {told.got.status}:\n{told.got.body!r}\n")
    for record in told.records:
        print(msgspec.json.encode(record).decode())


def table(result: Run, took: float, before: int, after: int) -> None:
    """Print what happened, by what the first model's stream was like."""
    ends = sorted({end for _, end in result.counts})
    kinds = sorted({kind for kind, _ in result.counts})
    print(f"{'the first model':<16}" + "".join(f"{end:>18}" for end in ends))
    for kind in kinds:
        print(f"{kind:<16}" + "".join(f"{result.counts[kind, end] or '':>18}" for end in ends))
    late = sorted(result.left_ms)
    if late:
        tail = late[min(len(late) - 1, int(len(late) * 0.99))]
        middle = late[len(late) // 2]
        print(f"\nmodels whose client left: {len(late)}, stopped after {middle:.1f} ms (P50), {tail:.1f} ms (P99)")
    print(f"{took:.0f} s; files and connections open in the gateway: {before} before, {after} after")


def main() -> int:
    """Read the arguments and run."""
    import uvloop

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seed", default="0")
    parser.add_argument("--only", type=int, default=None, help="the number of one stream, to see what became of it")
    given = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main_(given.streams, given.clients, given.seed, given.only))


if __name__ == "__main__":
    sys.exit(main())
