"""Hot reloads under load: does any request fail, is every answer of one version, is memory flat?

    python -m bench.reload [--reloads 1000] [--clients 8]

A real gateway process watches its config file. The file is replaced again and again, every tenth time by one broken in
another way, while clients send requests over kept-alive connections. Each good file carries its number as the version of
both models, so that an answer tells whether it is half old and half new.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import aiohttp
import psutil

SECRET = "bench-secret-0123456789"
MODELS = """
def fast(rows):
    return [("yes", 0.9) if "easy" in row else ("no", 0.4) for row in rows]

def large(rows):
    return [("yes", 0.99) for row in rows]
"""
GOOD = """
models:
  fast: {{backend: python, callable: "bench_reload_models:fast", labels: ["yes", "no"], version: "{number}"}}
  large: {{backend: python, callable: "bench_reload_models:large", labels: ["yes", "no"], version: "{number}", cost: 40}}
routes:
  default:
    policy: {{cascade: {{stages: [fast, large], threshold: 0.{threshold}}}}}
server: {{port: 0}}
admin: {{secret: {secret}, port: 0}}
"""


def broken(kind: int, good: str) -> str | None:
    """Return the good file broken in way `kind`; None: the file is deleted."""
    ways: tuple[str | None, ...] = (
        good.replace("models:", "models: ["),
        good.replace("stages: [fast", "stages: [fats"),
        good.replace("threshold: 0.", "threshold: -0."),
        good.replace("bench_reload_models:large", "bench_reload_models:gone"),
        good[: len(good) // 2],
        "",
        None,
        good.replace("cost: 40", "cots: 40"),
        good.replace("cost: 40", 'cost: "forty"'),
        good.replace("bench_reload_models:fast", "no_such_module:fast"),
    )
    return ways[kind % len(ways)]


class Run:
    """One run: the gateway's addresses, and what the clients saw."""

    def __init__(self, config: Path, url: str, admin: str) -> None:
        self.config, self.url, self.admin = config, url, admin
        self.number_of: dict[str, str] = {}
        self.seen: list[tuple[str, str, str]] = []
        self.statuses: Counter[int] = Counter()
        self.times: list[float] = []
        self.done = False

    async def client(self, session: aiohttp.ClientSession, name: int) -> None:
        """Send requests, easy and hard in turn, until the run is over."""
        turn = name
        while not self.done:
            turn += 1
            began = time.perf_counter()
            async with session.post(f"{self.url}/v1/predict", json={"data": "easy" if turn % 2 else "hard"}) as answer:
                body = await answer.json()
            self.times.append(time.perf_counter() - began)
            self.statuses[answer.status] += 1
            if answer.status == 200:
                info = body["data"]["route_info"]
                self.seen.append((info["config_version"], info["selected_model"], info["selected_version"]))
            await asyncio.sleep(0.002)

    async def status(self, session: aiohttp.ClientSession) -> dict[str, object]:
        """Return the admin status."""
        async with session.get(f"{self.admin}/admin/status", headers={"authorization": f"Bearer {SECRET}"}) as answer:
            found: dict[str, object] = await answer.json()
            return found

    async def change(self, session: aiohttp.ClientSession, number: int) -> float:
        """Replace the file and return the seconds until the gateway has taken it up or refused it."""
        good = GOOD.format(number=number, threshold=5 + number % 4, secret=SECRET)
        text = broken(number // 10, good) if number % 10 == 0 else good
        before = await self.status(session)
        began = time.perf_counter()
        if text is None:
            self.config.unlink()
        else:
            beside = self.config.with_suffix(".new")
            beside.write_text(text)
            beside.rename(self.config)
        while time.perf_counter() - began < 20:
            now = await self.status(session)
            if number % 10 == 0 and now["last_error"] is not None:
                return time.perf_counter() - began
            if number % 10 and now["config_version"] != before["config_version"]:
                self.number_of[str(now["config_version"])] = str(number)
                return time.perf_counter() - began
            await asyncio.sleep(0.005)
        raise SystemExit(f"the gateway did not react to file {number}: {await self.status(session)}")


async def start(config: Path) -> tuple[asyncio.subprocess.Process, str, str]:
    """Start `rheostat serve` as its own process and return the addresses that its log tells."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "rheostat",
        "serve",
        str(config),
        stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
    )
    assert process.stderr is not None
    found: list[str] = []
    while len(found) < 2:
        line = (await process.stderr.readline()).decode()
        if not line:
            raise SystemExit("the gateway did not start")
        found += re.findall(r"http://127\.0\.0\.1:\d+", line)
    log = asyncio.ensure_future(process.stderr.read())
    process.log = log  # type: ignore[attr-defined]  # kept alive, so that the pipe never fills
    return process, found[0], found[1]


async def measure(reloads: int, clients: int, folder: Path) -> None:
    """Run it and print what was seen."""
    (folder / "bench_reload_models.py").write_text(MODELS)
    config = folder / "rheostat.yaml"
    config.write_text(GOOD.format(number=0, threshold=5, secret=SECRET))
    process, url, admin = await start(config)
    memory = psutil.Process(process.pid)
    run = Run(config, url, admin)
    took: list[float] = []
    sizes: list[float] = []
    async with aiohttp.ClientSession() as session:
        run.number_of[str((await run.status(session))["config_version"])] = "0"
        senders = [asyncio.ensure_future(run.client(session, name)) for name in range(clients)]
        for number in range(1, reloads + 1):
            took.append(await run.change(session, number))
            if number % max(1, reloads // 10) == 0:
                sizes.append(memory.memory_info().rss / 2**20)
                print(f"  {number:5} files, {len(run.seen):7,} answers, resident memory {sizes[-1]:.1f} MiB", flush=True)
        run.done = True
        await asyncio.gather(*senders)
    process.terminate()
    await process.wait()
    mixed = [entry for entry in run.seen if run.number_of.get(entry[0]) != entry[2]]
    order = sorted(run.times)
    print(f"requests {sum(run.statuses.values()):,}, by status {dict(run.statuses)}")
    print(f"answers of mixed or unknown version: {len(mixed)}")
    print(f"taken up or refused after {statistics.median(took) * 1000:.0f} ms (median), {max(took) * 1000:.0f} ms (longest)")
    print(f"request P50 {order[len(order) // 2] * 1000:.1f} ms, P99 {order[len(order) * 99 // 100] * 1000:.1f} ms")
    print(f"memory from {sizes[0]:.1f} to {sizes[-1]:.1f} MiB; exit status {process.returncode}")
    if mixed or set(run.statuses) != {200}:
        raise SystemExit(f"not as promised: {mixed[:3]} {dict(run.statuses)}")


def main() -> None:
    """Read the arguments and run."""
    arguments = argparse.ArgumentParser(description="Hot reloads under load.")
    arguments.add_argument("--reloads", type=int, default=1000)
    arguments.add_argument("--clients", type=int, default=8)
    options = arguments.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(options.reloads, options.clients, Path(folder)))


if __name__ == "__main__":
    main()
