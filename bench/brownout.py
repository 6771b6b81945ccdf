"""The large model becomes ten times slower under load near its capacity, and recovers: who answers, how fast, how calmly?

    python -m bench.brownout              # every way to be protected, about half a minute each
    python -m bench.brownout limit        # one of them

Large works on 8 requests at a time, 40 ms each (200 a second at most); 150 come. Calls that the gateway gave up on still
hold its places, as in most model servers. A turn is a change of direction of large's share of the answers by more than
20 points between halves of seconds: falling once and coming back once are 2. Pictures: `bench-out/brownout-WAY.png`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from pathlib import Path

from bench.outage_load import Sample, load, scrape, share
from bench.outage_plot import plot
from bench.outage_process import Process, free_port, gateway

MODELS = ("large", "small")
WAYS = {
    "timeout": "timeout: 300ms, breaker: {failureThreshold: 0}",
    "breaker": "timeout: 300ms, breaker: {failureThreshold: 5, timeoutSeconds: 1}, ramp: {start: .05, seconds: 5}",
    "limit": "timeout: 600ms, max_concurrency: 10, queue: 4, breaker: {failureThreshold: 5, timeoutSeconds: 1}",
}
CONFIG = """
models:
  large: {backend: http, url: "http://127.0.0.1:LARGE/predict", labels: [even, odd], cost: 20, lighter: small, WAY}
  small: {backend: http, url: "http://127.0.0.1:SMALL/predict", labels: [even, odd], cost: 1}
routes:
  default: {policy: large, deadline: 1s, fallback: {retry: 0}}
"""
USUAL_S, RATE = 0.04, 150.0
SLOW_FROM, SLOW_TO, END = 6.0, 14.0, 30.0
DEADLINE_S = 1.0


async def brownout(way: str, folder: Path) -> bool:
    """Play one way, print its row, draw its picture; returns whether P99 stayed under the deadline with all answered."""
    sleeps = {"large": folder / "large.sleep", "small": folder / "small.sleep"}
    sleeps["large"].write_text(str(USUAL_S))
    sleeps["small"].write_text("0.003")
    ports = {name: free_port() for name in MODELS}
    servers = []
    for name in MODELS:
        command = [sys.executable, "-m", "bench.outage_server", str(ports[name]), str(sleeps[name]), "8"]
        servers.append(Process(name, command, f"http://127.0.0.1:{ports[name]}/health", folder))
    config = CONFIG.replace("LARGE", str(ports["large"])).replace("SMALL", str(ports["small"])).replace("WAY", WAYS[way])
    served, url = gateway(folder, config)
    seen: list[tuple[float, dict[str, float]]] = []
    try:
        for server in (*servers, served):
            server.start()
        for server in (*servers, served):
            await server.until_ready()
        await load(url, 50, 1.0)
        scraper = asyncio.create_task(scrape(url, 0.5, seen))
        samples, _ = await asyncio.gather(load(url, RATE, END), _slow(sleeps["large"]))
        scraper.cancel()
    finally:
        for server in (*servers, served):
            server.kill()
    plot(Path(f"bench-out/brownout-{way}.png"), samples, seen, [(SLOW_FROM, SLOW_TO, "large: 10x slower")], MODELS)
    return _tell(way, samples)


async def _slow(sleep: Path) -> None:
    await asyncio.sleep(SLOW_FROM)
    sleep.write_text(str(USUAL_S * 10))
    await asyncio.sleep(SLOW_TO - SLOW_FROM)
    sleep.write_text(str(USUAL_S))


def shares(samples: list[Sample]) -> list[float]:
    """Return large's share of the answers in each half of a second."""
    bins: list[list[bool]] = [[] for _ in range(int(END * 2))]
    for sample in samples:
        bins[int(sample.due * 2)].append(sample.model == "large")
    return [sum(found) / max(1, len(found)) for found in bins]


def turns(values: list[float], least: float = 0.2) -> int:
    """Return how often a series changes its direction, counting moves of at least `least` only; the first move counts."""
    count, direction, extreme = 0, 0, values[0]
    for value in values[1:]:
        if direction >= 0 and value <= extreme - least:
            count, direction, extreme = count + 1, -1, value
        elif direction <= 0 and value >= extreme + least:
            count, direction, extreme = count + 1, 1, value
        elif direction > 0 or (direction == 0 and value > extreme):
            extreme = max(extreme, value)
        elif direction < 0:
            extreme = min(extreme, value)
    return count


def _tell(way: str, samples: list[Sample]) -> bool:
    found = shares(samples)
    wrong = sum(not sample.right for sample in samples)
    slow = [sample for sample in samples if SLOW_FROM <= sample.due < SLOW_TO]
    taken = next(
        (index / 2 + 0.5 - SLOW_FROM for index in range(int(SLOW_FROM * 2), len(found)) if found[index] < 0.5), -1.0
    )
    back = next((index / 2 - SLOW_TO for index in range(int(SLOW_TO * 2), len(found)) if min(found[index:]) >= 0.9), -1.0)
    print(f"{way:<9}{len(samples):>9}{wrong:>7}{share(samples, 50):>8.1f}{share(samples, 99):>8.1f}{share(slow, 99):>10.1f}"
          f"{share(samples, 100):>8.1f}{taken:>10.1f}{back:>9.1f}{turns(found):>7}")  # fmt: skip
    return wrong == 0 and share(slow, 99) < DEADLINE_S * 1e3


def main() -> None:
    """Run the bench."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ways", nargs="*", default=list(WAYS), help=f"of {', '.join(WAYS)}")
    ways = parser.parse_args().ways
    print(
        f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}; {RATE:.0f} requests/s; -1: never; times in seconds"
    )
    print(f"{'way':<9}{'requests':>9}{'wrong':>7}{'P50 ms':>8}{'P99 ms':>8}{'slow P99':>10}{'max ms':>8}"
          f"{'taken over':>10}{'back':>9}{'turns':>7}")  # fmt: skip
    good = True
    for way in ways:
        with tempfile.TemporaryDirectory(prefix="rheostat-brownout-") as name:
            good = asyncio.run(brownout(way, Path(name))) and good
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
