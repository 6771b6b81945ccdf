"""What a cache gives and costs, and whether it stays in its room.

    python -m bench.cache [--distinct N]

A router with one model that sleeps 20 ms in a thread. (1) How long a hit takes inside the gateway. (2) What a miss costs
more than a route without a cache. (3) How many calls 1,000 equal requests of the same moment cause, of one tenant and of
ten. (4) Memory, time of a look and counters over many distinct answers of 5 kB in a room of 100 MB.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from statistics import median

import psutil

from rheostat.cache.answers import Answers, Question
from rheostat.router import Router
from rheostat.types import Prediction, Request, RouteRecord

MODULE = """
import time
CALLS = []

def slow(row):
    CALLS.append(row)
    time.sleep(0.02)
    return "yes", 0.9

def quick(row):
    return "yes", 0.9
"""
CONFIG = """
models:
  slow: {backend: python, callable: "bench_cached:slow", each: true, run: thread, probe: probe}
  quick: {backend: python, callable: "bench_cached:quick", each: true, run: inline}
routes:
  default: {policy: slow, cache: {ttl: 1h}}
  plain: {policy: quick}
  kept: {policy: quick, cache: {ttl: 1h}}
cache: {entries: 1000000, max_bytes: 1000000000}
"""


async def in_a_router(folder: Path) -> None:
    (folder / "bench_cached.py").write_text(MODULE)
    (folder / "rheostat.yaml").write_text(CONFIG)
    router = await Router.open(str(folder / "rheostat.yaml"))
    import bench_cached  # type: ignore[import-not-found]

    await router.apredict("a question of the usual length, asked again")
    took = []
    for _ in range(20_000):
        began = time.perf_counter()
        served = await router.apredict("a question of the usual length, asked again")
        took.append(time.perf_counter() - began)
    assert served.record.cache == "hit"
    took.sort()
    print(f"a hit inside the gateway: P50 {took[10_000] * 1e6:.0f} us, P99 {took[19_800] * 1e6:.0f} us")

    costs: dict[str, list[float]] = {"plain": [], "kept": []}
    for run in range(9):
        for route, found in costs.items():
            began = time.process_time()
            for number in range(2_000):
                await router.apredict(f"question {run} {number}", route=route)
            found.append((time.process_time() - began) / 2_000 * 1e6)
    without, with_it = median(costs["plain"]), median(costs["kept"])
    print(f"a request that misses: {with_it:.1f} us cpu, {without:.1f} without a cache, {with_it - without:+.1f}")

    for tenants in (1, 10):
        before = len(bench_cached.CALLS)
        await asyncio.gather(
            *(router.apredict(f"hot for {tenants}", tenant=f"t{number % tenants}") for number in range(1_000))
        )
        print(f"1,000 equal requests at once, {tenants} tenant(s): {len(bench_cached.CALLS) - before} call(s)")
    await router.aclose()


def in_its_room(distinct: int) -> None:
    answers = Answers(10_000_000, 100_000_000, 3600.0)
    question = Question(salt="default/1")
    record = RouteRecord(id="r", wall=0.0, route="default", status="ok", selected_model="a", selected_version="1")
    process = psutil.Process()
    before = process.memory_info().rss
    looks = []
    for number in range(distinct):
        request = Request(id="r", data=f"{number} {'x' * 5000}")
        began = time.perf_counter()
        key = question.key(request)
        found = answers.recall(key, float(number), 1e9)
        looks.append(time.perf_counter() - began)
        assert found is None
        answers.keep(key, Prediction("yes", 0.9, None, "y" * 5000 + str(number)), record, float(number))
    tenth = distinct // 10
    first, last = median(looks[:tenth]), median(looks[-tenth:])
    grown = (process.memory_info().rss - before) / 1e6
    print(f"{distinct:,} distinct answers of 5 kB, room 100 MB: {len(answers):,} kept, {answers.evicted:,} evicted,")
    print(f"  {answers.bytes / 1e6:.1f} MB by its own count, {grown:.1f} MB more memory in the process")
    print(f"  a look takes {first * 1e6:.1f} us in the first tenth and {last * 1e6:.1f} us in the last")
    assert len(answers) + answers.evicted == distinct
    large = Prediction("yes", 0.9, None, "z" * 50_000_000)
    kept = [answers.keep(question.key(Request(id="r", data=f"large {n}")), large, record, 0.0) for n in range(3)]
    print(f"  of three values of 50 MB kept: {sum(each is not None for each in kept)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--distinct", type=int, default=200_000, help="answers for the room (default 200000)")
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(in_a_router(Path(folder)))
    in_its_room(words.distinct)


if __name__ == "__main__":
    main()
