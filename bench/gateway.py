"""What the gateway itself costs: CPU microseconds a request, against a bare ASGI echo and against the models alone.

    python -m bench.gateway                      # 16 and 64 clients, one worker, alternating runs
    python -m bench.gateway --count 200000       # is any request lost, doubled or swapped?

The gateway serves an in-process pool: rules in front of a cascade of two inline models, records to JSON lines and SQLite,
metrics on. CPU time is the server process's own (all its threads), so it includes the writing of records. The load comes
from another process: `wrk` where it is installed, else an asyncio client. `own cost` is the gateway's CPU time less that
of the models; the models' is measured by calling them directly and multiplied by how often each one was called.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

from bench import gateway_models
from bench.gateway_load import body_of, text_of

CONFIG = """
models:
  fast: {backend: python, callable: "bench.gateway_models:fast", each: true, cost: 1, run: inline}
  large: {backend: python, callable: "bench.gateway_models:large", each: true, cost: 20, run: inline}
routes:
  default:
    policy:
      chain:
        - rules:
            - {name: high risk, when: "meta.risk_level == 'high'", use: large}
            - {name: long text, when: "text.size() > 1000", use: large}
        - cascade: {stages: [fast, large], threshold: 0.9}
records: {jsonl: records.jsonl, sqlite: records.db}
"""
SERVE = "import asyncio, sys, logging; logging.basicConfig(level='INFO', stream=sys.stdout, format='%(message)s')\n"
SERVE += "import uvloop; from rheostat.gateway.server import run\n"
SERVE += "with asyncio.Runner(loop_factory=uvloop.new_event_loop) as r: r.run(run(sys.argv[1], port=0, watch=False))"


LUA = """
local bodies = {BODIES}
local at = 0
local head = {["Content-Type"] = "application/json"}
request = function()
  at = at % #bodies + 1
  return wrk.format("POST", "/v1/predict", head, bodies[at])
end
done = function(summary, latency)
  local e = summary.errors
  local failed = e.status + e.connect + e.read + e.write + e.timeout
  local p50, p99 = latency:percentile(50), latency:percentile(99)
  io.write(string.format("RESULT %d %d %d %d %d\\n", summary.requests, summary.duration, p50, p99, failed))
end
"""


class Run(NamedTuple):
    """One run of load: totals and latencies in milliseconds."""

    requests: int
    seconds: float
    cpu_us: float
    p50_ms: float
    p99_ms: float
    wrong: int


class Server:
    """A server in a process of its own."""

    def __init__(self, arguments: list[str], cpu_path: str) -> None:
        self.process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        found = None
        while found is None and (line := self.process.stdout.readline()):
            found = re.search(r"serving on (http://\S+)", line)
        if found is None:
            raise SystemExit("a server did not start")
        self.url = found[1]
        self._cpu_path = cpu_path

    def page(self, path: str) -> str:
        """Return a page."""
        with urllib.request.urlopen(self.url + path, timeout=30) as response:
            return str(response.read().decode())

    def cpu_s(self) -> float:
        """Return the CPU seconds that the process has used."""
        page = self.page(self._cpu_path)
        found = re.search(r"^process_cpu_seconds_total ([\d.e+-]+)$", page, re.MULTILINE)
        return float(found[1] if found else page)

    def calls(self) -> dict[str, float]:
        """Return how often each model was called."""
        found = re.findall(
            r'^rheostat_model_calls_total\{model="(\w+)".*\} ([\d.e+]+)$', self.page("/metrics"), re.MULTILINE
        )
        return {model: float(count) for model, count in found}

    def stop(self) -> None:
        """Stop it and wait."""
        self.process.terminate()
        self.process.communicate(timeout=60)


def wrk(url: str, clients: int, seconds: float, folder: Path) -> tuple[int, float, float, float, int]:
    """Load with wrk; returns requests, seconds, P50 and P99 in milliseconds, failures."""
    bodies = ",\n".join(f"[=[{body_of(number).decode()}]=]" for number in range(64))
    script = folder / "load.lua"
    script.write_text(LUA.replace("BODIES", bodies))
    command = ["wrk", "-t1", f"-c{clients}", f"-d{seconds:.0f}s", "-s", str(script), url]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"RESULT (\d+) (\d+) (\d+) (\d+) (\d+)", said)
    if found is None:
        raise SystemExit(f"wrk said: {said}")
    requests, micros, p50, p99, failed = (int(part) for part in found.groups())
    return requests, micros / 1e6, p50 / 1e3, p99 / 1e3, failed


def client(url: str, clients: int, requests: int) -> dict[str, Any]:
    """Load with our own client."""
    command = [sys.executable, "-m", "bench.gateway_load", "client", url, str(clients), str(requests)]
    found: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return found


def load(server: Server, clients: int, seconds: float, folder: Path) -> Run:
    """Load a server and return what it cost."""
    before = server.cpu_s()
    if shutil.which("wrk"):
        requests, took, p50, p99, wrong = wrk(server.url, clients, seconds, folder)
    else:
        found = client(server.url, clients, int(4_000 * seconds))
        requests, took, p50, p99, wrong = (found[name] for name in ("requests", "seconds", "p50_ms", "p99_ms", "wrong"))
    time.sleep(0.5)  # records that wait are part of the price
    return Run(requests, took, (server.cpu_s() - before) / requests * 1e6, p50, p99, wrong)


def direct_us(seconds: float = 1.0) -> dict[str, float]:
    """Return the CPU microseconds of one call of each model."""
    rows = [text_of(number) for number in range(64)]
    costs = {}
    for name in ("fast", "large"):
        model = getattr(gateway_models, name)
        count, began = 0, time.process_time()
        while time.process_time() - began < seconds:
            for row in rows:
                model(row)
            count += len(rows)
        costs[name] = (time.process_time() - began) / count * 1e6
    return costs


def compare(folder: Path, rounds: int, seconds: float) -> bool:
    """Print the table; returns whether every request was answered."""
    echo = Server(["-m", "bench.gateway_load", "echo"], "/cpu")
    gateway = Server(["-c", SERVE, str(folder / "rheostat.yaml")], "/metrics")
    try:
        costs = direct_us()
        tool = "wrk" if shutil.which("wrk") else "our client"
        print(f"models called directly: fast {costs['fast']:.1f} us, large {costs['large']:.1f} us")
        print(f"load from {tool}, {rounds} alternating rounds of {seconds:.0f} s, medians\n")
        print(" ".join(f"{name:>9}" for name in ("clients", "server", *Figures._fields)))
        few = _at(16, echo, gateway, costs, rounds, seconds, folder)
        many = _at(64, echo, gateway, costs, rounds, seconds, folder)
        return few and many
    finally:
        echo.stop()
        gateway.stop()


class Figures(NamedTuple):
    """One row of the table: CPU in microseconds a request, latencies in milliseconds."""

    req_s: float
    cpu_us: float
    own_us: float
    x_echo: float
    p50_ms: float
    p99_ms: float


def _at(
    clients: int, echo: Server, gateway: Server, costs: dict[str, float], rounds: int, seconds: float, folder: Path
) -> bool:
    """Measure and print one number of clients."""
    for server in (echo, gateway):
        load(server, clients, 1, folder)
    before = gateway.calls()
    pairs = [(load(echo, clients, seconds, folder), load(gateway, clients, seconds, folder)) for _ in range(rounds)]
    after = gateway.calls()
    served = sum(pair[1].requests for pair in pairs)
    models_us = sum(costs[name] * (after[name] - before.get(name, 0.0)) for name in costs) / served
    base = statistics.median(pair[0].cpu_us for pair in pairs)
    for index, name in enumerate(("echo", "gateway")):
        runs = [pair[index] for pair in pairs]
        cpu = statistics.median(run.cpu_us for run in runs)
        own = cpu - models_us if name == "gateway" else cpu
        rate = statistics.median(run.requests / run.seconds for run in runs)
        p50, p99 = (statistics.median(getattr(run, at) for run in runs) for at in ("p50_ms", "p99_ms"))
        print(
            f"{clients:>9} {name:>9} "
            + " ".join(f"{value:>9.2f}" for value in Figures(rate, cpu, own, own / base, p50, p99))
        )
    return not any(run.wrong for pair in pairs for run in pair)


def count(folder: Path, requests: int, clients: int) -> bool:
    """Send numbered requests and print whether each was answered once, with its own text, and recorded once."""
    gateway = Server(["-c", SERVE, str(folder / "rheostat.yaml")], "/metrics")
    try:
        found = client(gateway.url, clients, requests)
        waiting = gateway.page("/metrics")
    finally:
        gateway.stop()
    with sqlite3.connect(folder / "records.db") as database:
        stored, distinct = database.execute("SELECT count(*), count(DISTINCT id) FROM records").fetchone()
    with open(folder / "records.jsonl", "rb") as file:
        ids = [json.loads(line)["event"]["id"] for line in file]
    print(f"requests sent             {requests}")
    print(f"answered                  {found['requests']}")
    print(f"with another's text, or not 200: {found['wrong']}")
    print(f"records in SQLite         {stored} ({distinct} different)")
    print(f"records in JSON lines     {len(ids)} ({len(set(ids))} different)")
    for line in found["first_wrong"]:
        print(line)
    print("when the last answer came:")
    for line in re.findall("^rheostat_records_.*$", waiting, re.MULTILINE):
        print(f"  {line}")
    return found["wrong"] == 0 and {found["requests"], stored, distinct, len(ids), len(set(ids))} == {requests}


def main() -> None:
    """Run the bench."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each run")
    parser.add_argument("--no-records", action="store_true", help="store no records, to see what storing costs")
    parser.add_argument("--count", type=int, default=0, help="check this many numbered requests instead")
    parser.add_argument("--clients", type=int, default=64, help="for --count")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rheostat-bench-") as name:
        folder = Path(name)
        (folder / "rheostat.yaml").write_text(
            re.sub("^records:.*", "", CONFIG, flags=re.MULTILINE) if chosen.no_records else CONFIG
        )
        print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}")
        good = (
            count(folder, chosen.count, chosen.clients) if chosen.count else compare(folder, chosen.rounds, chosen.seconds)
        )
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
