"""What storing records costs: CPU microseconds a record, for each store alone and for both together.

    python -m bench.records                      # cost a record, and P99 by model version over 100,000 records
    python -m bench.records --sustain 30         # is any record lost at 8,000 a second while two other processes are busy?

The records are those of a cascade of two inline models, made by the product's engine. CPU time is the whole process's own
(putting, encoding and writing, all threads); `put` is the part the request path pays, in the time of its thread. Rounds of
all stores take turns; the cheapest round of each is shown, since other processes can only add to it. The yardstick, bare
`msgspec` over the same records, tells how fast the machine is meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import structs

from bench.gateway import CONFIG
from bench.gateway_load import text_of
from rheostat.clock import SystemClock
from rheostat.engine.engine import Engine
from rheostat.resilience.holds import Holds
from rheostat.router import Router
from rheostat.telemetry import P99_BY_VERSION, JsonlSink, Masker, Recorder, Sink, SqliteReader, SqliteSink
from rheostat.types import RouteRecord

BURST = 1_000  # what 0.2 s bring at 5,000 requests a second
QUERY_RECORDS = 100_000
RATE = 8_000
SPIN = "while True: sum(range(10000))"


class Cost(NamedTuple):
    """CPU microseconds a record: in all, and in `put`."""

    all_us: float
    put_us: float


async def cascade_records(count: int) -> list[RouteRecord]:
    """Serve `count` texts through the cascade of the gateway's bench and return the records it leaves."""
    made: list[RouteRecord] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rheostat.yaml")
        path.write_text(CONFIG)
        router = await Router.open(str(path))
        engine = Engine(SystemClock(), Holds(1_000, 60.0), (made.append,))
        for number in range(count):
            await engine.serve(router.plan, router.request(text_of(number), meta={"risk_level": "low"}))
        await router.aclose()
    return made


def sinks_in(folder: str, names: Sequence[str], masker: Masker) -> list[Sink]:
    """Open the named stores as the gateway does."""
    kinds: dict[str, Callable[[], Sink]] = {
        "jsonl": lambda: JsonlSink(Path(folder, "r.jsonl"), mask=masker.mask),
        "sqlite": lambda: SqliteSink(Path(folder, "r.db"), max_rows=1_000_000, mask=masker.mask),
    }
    return [kinds[name]() for name in names]


def store(records: Sequence[RouteRecord], names: Sequence[str]) -> Cost:
    """Store the records in bursts; each burst is written before the next one comes."""
    masker = Masker(["a-secret-of-the-config"])
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(sinks_in(folder, names, masker), mask=masker.mask)
        for record in records[:BURST]:
            recorder.put(structs.replace(record, id=f"warm-{record.id}"))
        recorder.flush(30.0)
        began, putting = time.process_time(), 0.0
        for start in range(0, len(records), BURST):
            before = time.thread_time()
            for record in records[start : start + BURST]:
                recorder.put(record)
            putting += time.thread_time() - before
            recorder.flush(30.0)
        took = time.process_time() - began
        stats = recorder.stats()
        recorder.close(30.0)
    if stats.written != (len(records) + BURST) * len(names):
        raise SystemExit(f"records were lost: {stats}")
    return Cost(took / len(records) * 1e6, putting / len(records) * 1e6)


def yardstick_us(records: Sequence[RouteRecord]) -> float:
    """Return the CPU microseconds of turning one record into JSON with nothing around it."""
    encode = msgspec.json.Encoder().encode
    began = time.thread_time()
    for record in records:
        encode(record)
    return (time.thread_time() - began) / len(records) * 1e6


def query_seconds(records: Sequence[RouteRecord]) -> tuple[float, int]:
    """Store 100,000 records; return the seconds that P99 by model version takes over them, and the file's size."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "r.db")
        sink = SqliteSink(path)
        for start in range(0, QUERY_RECORDS, BURST):
            batch = (records[number % len(records)] for number in range(start, start + BURST))
            sink.write([structs.replace(record, id=f"q{start + n}") for n, record in enumerate(batch)])
        sink.close()
        size = path.stat().st_size
        reader = SqliteReader(path)
        began = time.perf_counter()
        reader.query(P99_BY_VERSION)
        took = time.perf_counter() - began
        reader.close()
    return took, size


def sustain(records: Sequence[RouteRecord], seconds: float, rate: int, busy: int) -> None:
    """Put `rate` records a second while `busy` other processes use all the CPU they get; print what was lost."""
    others = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(busy)]
    masker = Masker()
    try:
        with tempfile.TemporaryDirectory() as folder:
            recorder = Recorder(sinks_in(folder, ("jsonl", "sqlite"), masker))
            cpu, began = time.process_time(), time.perf_counter()
            done, behind = 0, 0.0
            longest = {"jsonl": 0, "sqlite": 0}
            total = int(seconds * rate)
            while done < total:
                due = min(total, int((time.perf_counter() - began) * rate))
                behind = max(behind, (due - done) / rate)
                for number in range(done, due):
                    recorder.put(structs.replace(records[number % len(records)], id=f"s{number}"))
                done = due
                for sink in recorder.stats().sinks:
                    longest[sink.name] = max(longest[sink.name], sink.queued)
                time.sleep(0.005)
            took = time.perf_counter() - began
            closing = time.perf_counter()
            lost = recorder.close(60.0)
            closing = time.perf_counter() - closing
            cpu = time.process_time() - cpu
            stats = recorder.stats()
            reader = SqliteReader(Path(folder, "r.db"))
            rows = reader.query("SELECT count(*) FROM records")[0][0]
            reader.close()
            with open(Path(folder, "r.jsonl"), "rb") as file:
                lines = sum(1 for _ in file)
    finally:
        for other in others:
            other.kill()
            other.wait()
    print(f"{total} records in {took:.1f} s beside {busy} busy processes: {lines} lines, {rows} rows, {lost} lost at close")
    print(f"dropped {stats.dropped}; longest queues {longest}; close took {closing:.2f} s")
    print(f"CPU {cpu / total * 1e6:.1f} us a record, the load's own included; the load was up to {behind:.2f} s late")


def main() -> None:
    """Print the table, or the sustained run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000, help="records a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sustain", type=float, default=0.0, metavar="S", help="seconds of steady load")
    parser.add_argument("--rate", type=int, default=RATE, help="records a second of the steady load")
    parser.add_argument("--busy", type=int, default=2, help="processes that are busy meanwhile")
    options = parser.parse_args()
    records = asyncio.run(cascade_records(options.count))
    if options.sustain:
        sustain(records, options.sustain, options.rate, options.busy)
        return
    stores = (("jsonl",), ("sqlite",), ("jsonl", "sqlite"))
    costs: dict[Sequence[str], list[Cost]] = {names: [] for names in stores}
    yardstick: list[float] = []
    for _ in range(options.rounds):
        yardstick.append(yardstick_us(records))
        for names in stores:
            costs[names].append(store(records, names))
    print(f"{len(records)} records, best of {options.rounds}; yardstick {min(yardstick):.1f} us")
    print(f"{'store':14} {'CPU us a record':>16} {'of it in put':>13}")
    for names in stores:
        print(f"{' + '.join(names):14} {min(costs[names]).all_us:16.1f} {min(cost.put_us for cost in costs[names]):13.2f}")
    took, size = query_seconds(records)
    print(f"p99 by model version over {QUERY_RECORDS} records: {took:.2f} s; {size / QUERY_RECORDS:.0f} bytes a record")


if __name__ == "__main__":
    main()
