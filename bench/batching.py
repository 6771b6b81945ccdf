"""Throughput of a batched model in this process beside servers made for batching: `python -m bench.batching [names...]`.

The same net (`bench/batching_peers/net.py`: a call over 32 rows takes about 1.5 ms on one core) behind each server, one
instance, at most 32 rows a call, BLAS on one thread; 32 keep-alive connections of `wrk` (Debian package `wrk`), each server
alone, in turns; `rheostat, process` has the net in a process of its own (`workers: 1`), and `library` is this router asked
by 32 clients of its own process, without HTTP. First each server's answers
are held against the net's own, 200 of them over 32 connections. The peers live in virtual environments under
`~/.cache/rheostat/peers` (`$RHEOSTAT_PEERS`); those that are absent are named:

    python -m venv ~/.cache/rheostat/peers/mosec && ~/.cache/rheostat/peers/mosec/bin/pip install mosec numpy
    ... litserve: litserve numpy; mlserver: mlserver==1.7.1 'fastapi<0.116' numpy; Triton: see bench/triton.py
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from bench import triton
from bench.batching_peers.net import Net
from bench.outage_process import Process, free_port

HERE = Path(__file__).with_name("batching_peers")
PEERS = Path(os.environ.get("RHEOSTAT_PEERS", "~/.cache/rheostat/peers")).expanduser()
ROWS, CLIENTS, WAIT_MS = 32, 32, 2
NO_HTTP = "library"
APART = "rheostat, process"
ROUNDS, SECONDS = int(os.environ.get("ROUNDS", "3")), int(os.environ.get("SECONDS", "6"))
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "RHEOSTAT_ROWS": str(ROWS),
    "RHEOSTAT_WAIT_MS": str(WAIT_MS),
}


class Server(NamedTuple):
    """How one server is asked, and what it answers: (label, share)."""

    process: Process
    url: str
    body: Callable[[str], Any]
    read: Callable[[Any], tuple[str, float]]


def config(folder: Path, more: str = "") -> str:
    """Write our config, with `more` settings of the model, and return where it is."""
    path = folder / "rheostat.yaml"
    path.write_text(
        "models: {net: {backend: python, callable: 'bench.batching_peers.net:Net', "
        f"{more}batch: {{max_rows: {ROWS}, max_wait: {WAIT_MS}ms}}}}}}\n"
        "routes: {default: {policy: net, deadline: 5s}}\n"
    )
    return str(path)


def apart(folder: Path) -> Server:
    """This gateway with the net in a process of its own, as Mosec and Triton have it."""
    return rheostat(folder, "workers: 1, ")


def rheostat(folder: Path, more: str = "") -> Server:
    """This gateway with the net as a Python callable."""
    config(folder, more)
    port = free_port()
    command = [sys.executable, "-m", "rheostat", "serve", str(folder / "rheostat.yaml"), "--port", str(port)]
    return Server(
        Process("rheostat", command, f"http://127.0.0.1:{port}/health/ready", folder, _environment(Path.cwd())),
        f"http://127.0.0.1:{port}/v1/predict",
        lambda text: {"text": text},
        lambda answer: (answer["data"]["final_label"], answer["data"]["final_score"]),
    )


def mosec(folder: Path) -> Server:
    port = free_port()
    command = [_python("mosec"), str(HERE / "mosec_server.py"), "--address", "127.0.0.1", "--port", str(port)]
    process = Process("mosec", command, f"http://127.0.0.1:{port}/metrics", folder, _environment(HERE))
    return Server(process, f"http://127.0.0.1:{port}/inference", lambda text: {"text": text}, _plain)


def litserve(folder: Path) -> Server:
    port = free_port()
    command = [_python("litserve"), str(HERE / "litserve_server.py"), str(port)]
    process = Process("litserve", command, f"http://127.0.0.1:{port}/health", folder, _environment(HERE))
    return Server(process, f"http://127.0.0.1:{port}/predict", lambda text: {"text": text}, _plain)


def mlserver(folder: Path) -> Server:
    ports = [free_port() for _ in range(3)]
    place = folder / "mlserver"
    place.mkdir(exist_ok=True)
    names = ("http_port", "grpc_port", "metrics_port")
    server = {**dict(zip(names, ports, strict=True)), "host": "127.0.0.1", "parallel_workers": 0, "debug": False}
    (place / "settings.json").write_text(json.dumps(server))
    model = {"name": "net", "implementation": "mlserver_runtime.Runtime"}
    batch = {"max_batch_size": ROWS, "max_batch_time": WAIT_MS / 1_000.0}
    (place / "model-settings.json").write_text(json.dumps(model | batch))
    command = [str(PEERS / "mlserver/bin/mlserver"), "start", str(place)]
    ready = f"http://127.0.0.1:{ports[0]}/v2/models/net/ready"
    process = Process("mlserver", command, ready, folder, _environment(HERE))
    return Server(process, f"http://127.0.0.1:{ports[0]}/v2/models/net/infer", lambda text: _tensor("text", text), _tensors)


def triton_server(folder: Path) -> Server:
    port = free_port()
    (folder / "sleep").write_text("0")
    os.environ.update(ONE_THREAD)
    process = triton.triton(folder, port, folder / "sleep", load="triton_net")
    model = folder / "triton/models/triton_net"
    shutil.copytree(HERE / "triton_net", model)
    shutil.copy(HERE / "net.py", model / "1")
    return Server(process, f"http://127.0.0.1:{port}/v2/models/triton_net/infer", lambda t: _tensor("TEXT", t), _tensors)


SERVERS: Mapping[str, tuple[Callable[[Path], Server], Callable[[], bool]]] = {
    "rheostat": (rheostat, lambda: True),
    APART: (apart, lambda: True),
    "mosec": (mosec, lambda: Path(_python("mosec")).exists()),
    "litserve": (litserve, lambda: Path(_python("litserve")).exists()),
    "mlserver": (mlserver, (PEERS / "mlserver/bin/mlserver").exists),
    "triton": (triton_server, triton.installed),
}


def _python(peer: str) -> str:
    return str(PEERS / peer / "bin/python")


def _environment(path: Path) -> dict[str, str]:
    return {**os.environ, **ONE_THREAD, "PYTHONPATH": str(path)}


def _plain(answer: Any) -> tuple[str, float]:
    return answer["label"], answer["share"]


def _tensor(name: str, text: str) -> Any:
    return {"inputs": [{"name": name, "shape": [1, 1], "datatype": "BYTES", "data": [text]}]}


def _tensors(answer: Any) -> tuple[str, float]:
    said = {tensor["name"]: tensor["data"][0] for tensor in answer["outputs"]}
    return said["label"], said["share"]


async def check(server: Server, net: Net) -> int:
    """Return how many of 200 answers are not those of their own text."""
    texts = [f"#{number} the film was a delight" for number in range(200)]
    gate = asyncio.Semaphore(CLIENTS)

    async def one(session: aiohttp.ClientSession, text: str) -> tuple[str, float]:
        async with gate, session.post(server.url, json=server.body(text)) as answer:
            return server.read(json.loads(await answer.read()))

    async with aiohttp.ClientSession() as session:
        got = await asyncio.gather(*[one(session, text) for text in texts])
    wanted = net(texts)
    return sum(one[0] != two[0] or abs(one[1] - two[1]) > 1e-3 for one, two in zip(got, wanted, strict=True))


def load(server: Server, folder: Path, seconds: int) -> tuple[float, float, float, int]:
    """Return requests a second, P50 and P99 in ms, and answers that were not 200."""
    bodies = ",".join(f"[==[{json.dumps(server.body(f'#{number} the film was a delight'))}]==]" for number in range(64))
    script = folder / "load.lua"
    script.write_text(
        f'wrk.method = "POST"\nwrk.headers["Content-Type"] = "application/json"\nlocal bodies = {{{bodies}}}\nlocal at = 0\n'
        "request = function() at = at % #bodies + 1; return wrk.format(nil, nil, nil, bodies[at]) end\n"
    )
    command = ["wrk", "-t1", f"-c{CLIENTS}", f"-d{seconds}s", "--latency", "-s", str(script), server.url]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    times = {int(part): float(value) * {"us": 0.001, "ms": 1.0, "s": 1_000.0}[unit]
             for part, value, unit in re.findall(r"(50|99)%\s+([\d.]+)(us|ms|s)", said)}  # fmt: skip
    wrong = sum(map(int, re.findall(r"Non-2xx or 3xx responses: (\d+)", said)))
    rate = re.search(r"Requests/sec:\s+([\d.]+)", said)
    assert rate is not None, said
    return float(rate[1]), times[50], times[99], wrong


def own_time_ms(net: Net) -> float:
    """Return the median time of one call over 32 rows, with nothing else running."""
    texts = [f"#{number} the film was a delight" for number in range(ROWS)]
    times = []
    for _ in range(200):
        began = time.perf_counter()
        net(texts)
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1_000.0


async def measured(name: str, net: Net, warm: bool) -> tuple[float, float, float]:
    with tempfile.TemporaryDirectory(prefix="rheostat-batching-") as place:
        folder = Path(place)
        server = SERVERS[name][0](folder)
        server.process.start()
        try:
            await server.process.until_ready()
            wrong = await check(server, net)
            if warm:
                await asyncio.to_thread(load, server, folder, 1)
            rate, p50, p99, failed = await asyncio.to_thread(load, server, folder, SECONDS)
        finally:
            server.process.kill()
    print(f"  {name:17} {rate:7.0f} requests/s, P50 {p50:6.2f} ms, P99 {p99:6.2f} ms"
          + (f"; {wrong} of 200 answers were another text's" if wrong else "")
          + (f"; {failed} failed" if failed else ""), flush=True)  # fmt: skip
    return rate, p50, p99


def library() -> tuple[float, float, float]:
    """Return what 32 clients in one process get from the library, without HTTP."""
    with tempfile.TemporaryDirectory(prefix="rheostat-batching-") as place:
        command = [sys.executable, "-m", "bench.batching_library", config(Path(place)), str(CLIENTS), str(SECONDS)]
        said = subprocess.run(command, capture_output=True, text=True, check=True, env=_environment(Path.cwd())).stdout
    rate, p50, p99 = map(float, said.splitlines()[-1].split())
    print(f"  {NO_HTTP:17} {rate:7.0f} requests/s, P50 {p50:6.2f} ms, P99 {p99:6.2f} ms", flush=True)
    return rate, p50, p99


async def main() -> None:
    """Measure, in turns, and print the table."""
    if shutil.which("wrk") is None:
        raise SystemExit("wrk is needed: apt install wrk")
    wanted = sys.argv[1:] or list(SERVERS)
    if unknown := set(wanted) - set(SERVERS):
        raise SystemExit(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(SERVERS)}")
    there = [name for name in wanted if SERVERS[name][1]()]
    for name in wanted:
        if name not in there:
            print(f"skipped: {name} is not installed (see the head of bench/batching.py)")
    net = Net()
    own = own_time_ms(net)
    print(f"one call over {ROWS} rows takes {own:.2f} ms by itself; {CLIENTS} clients, {ROUNDS} rounds of {SECONDS} s")
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in there}
    for turn in range(ROUNDS):
        for name in there[turn % len(there) :] + there[: turn % len(there)]:
            found[name].append(await measured(name, net, warm=True))
        if "rheostat" in there:
            found.setdefault(NO_HTTP, []).append(library())
    middle = {name: [statistics.median(column) for column in zip(*runs, strict=True)] for name, runs in found.items()}
    print("\n| server | requests/s | P50 ms | P99 ms | P99 by own time |\n|---|---|---|---|---|")
    for name, (rate, p50, p99) in middle.items():
        print(f"| {name} | {rate:.0f} | {p50:.2f} | {p99:.2f} | {p99 / own:.1f} |")
    others = {name: row[0] for name, row in middle.items() if name not in ("rheostat", APART, NO_HTTP)}
    for ours in (name for name in ("rheostat", APART) if name in middle):
        if others:
            best = max(others, key=others.__getitem__)
            ratio = middle[ours][0] / others[best]
            print(f"\n{ours} to the best other, {best}: {ratio:.2f} ({'reached' if ratio > 1 else 'MISSED'}: more than 1)")
        times = middle[ours][2] / own
        print(f"its P99 to the time of one full call: {times:.1f} ({'reached' if times <= 2 else 'MISSED'}: at most 2)")


if __name__ == "__main__":
    os.environ.update(ONE_THREAD)
    if "OMP_SET" not in os.environ:  # BLAS reads it when it is loaded
        os.execve(sys.executable, [sys.executable, "-m", "bench.batching", *sys.argv[1:]], {**os.environ, "OMP_SET": "1"})
    asyncio.run(main())
