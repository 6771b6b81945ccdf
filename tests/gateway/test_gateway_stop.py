"""The gateway as a process: signals, draining, reloads."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gateway_wire import Reply, ask, dial, until

from conftest import write_config

CODE = """
import asyncio, logging, sys
logging.basicConfig(level="INFO", stream=sys.stdout, format="%(message)s")
from rheostat.gateway.server import run
asyncio.run(run(sys.argv[1], host="127.0.0.1", port=0))
"""
Launch = Callable[[str], "Process"]


class Process:
    """A gateway in a process of its own."""

    def __init__(self, config: str) -> None:
        self.config = Path(config)
        self.output: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-c", CODE, config], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.url = ""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output.append(line)
            found = re.search(r"serving on (http://\S+)", line)
            if found:
                self.url = found[1]
            if "admin pages" in line:
                break
        assert self.url, "".join(self.output)

    def finish(self, within_s: float) -> int:
        """Wait for the end and keep what was said."""
        said, _ = self.process.communicate(timeout=within_s)
        self.output.append(said)
        return self.process.returncode


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    running: list[Process] = []

    def start(more: str) -> Process:
        running.append(Process(write_config(tmp_path, more)))
        return running[-1]

    yield start
    for process in running:
        if process.process.poll() is None:
            process.process.kill()
            process.process.communicate()


def in_background(url: str, body: Any, into: list[Reply]) -> threading.Thread:
    thread = threading.Thread(target=lambda: into.append(ask(url, body=body)))
    thread.start()
    return thread


def wait_in_flight(url: str, count: int) -> None:
    def running() -> bool:
        page = ask(url, "/metrics").body.decode()
        found = re.findall(r'rheostat_(?:in_flight|queue)\{model="sleepy"\} (\S+)', page)
        return sum(map(float, found)) >= count

    until(running)


def test_sigterm_lets_requests_finish_and_keeps_their_records(launch: Launch, tmp_path: Path) -> None:
    gateway = launch("server: {drain: 8s}\nrecords: {jsonl: records.jsonl}\n")
    assert "closed" in "".join(gateway.output)
    idle = dial(gateway.url)
    got: list[Reply] = []
    threads = [in_background(gateway.url, {"data": {"s": 0.5}, "route": {"name": "slow"}}, got) for _ in range(2)]
    wait_in_flight(gateway.url, 2)
    with dial(gateway.url) as kept:
        kept.sendall(b"GET /health/ready HTTP/1.1\r\nHost: x\r\n\r\n")
        assert kept.recv(65_536).startswith(b"HTTP/1.1 200 ")
        gateway.process.send_signal(signal.SIGTERM)
        for _ in range(200):
            kept.sendall(b"GET /health/ready HTTP/1.1\r\nHost: x\r\n\r\n")
            ready = kept.recv(65_536)
            if not ready.startswith(b"HTTP/1.1 200 "):
                break
        assert ready.startswith(b"HTTP/1.1 503 ")
    refused = ask(gateway.url, body={"data": "late"})
    assert (refused.status, refused.headers["retry-after"], refused.headers["connection"]) == (503, "1", "close")
    for thread in threads:
        thread.join()
    assert [reply.status for reply in got] == [200, 200]
    assert gateway.finish(12) == 0
    idle.close()
    lines = (tmp_path / "records.jsonl").read_text().splitlines()
    ids = {json.loads(line)["event"]["id"] for line in lines}
    assert {reply.json["request_id"] for reply in got} <= ids


def test_the_time_to_drain_is_limited(launch: Launch) -> None:
    gateway = launch("server: {drain: 300ms}\n")
    got: list[Reply] = []
    thread = in_background(gateway.url, {"data": {"s": 7}, "route": {"name": "slow"}}, got)
    wait_in_flight(gateway.url, 1)
    slow = dial(gateway.url)
    slow.sendall(b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    gateway.process.send_signal(signal.SIGTERM)
    assert gateway.finish(6) == 0
    thread.join()
    slow.close()
    assert [reply.status for reply in got] == [503]


def test_a_second_signal_does_not_wait(launch: Launch) -> None:
    gateway = launch("server: {drain: 60s}\n")
    got: list[Reply] = []
    thread = in_background(gateway.url, {"data": {"s": 7}, "route": {"name": "slow"}}, got)
    wait_in_flight(gateway.url, 1)
    gateway.process.send_signal(signal.SIGINT)
    until(lambda: ask(gateway.url, "/health/ready").status == 503)
    gateway.process.send_signal(signal.SIGINT)
    assert gateway.finish(6) == 0
    thread.join()


def test_a_changed_file_is_taken_up_and_a_broken_one_is_not(launch: Launch) -> None:
    gateway = launch("")
    good = gateway.config.read_text()

    def model() -> str:
        return ask(gateway.url, body={"data": "sure?"}).headers["x-rheostat-model"]

    assert model() == "large"
    gateway.config.write_text(good.replace("threshold: 0.9", "threshold: 0.4"))
    until(lambda: model() == "fast")
    gateway.config.write_text(good.replace("threshold: 0.9", "threshold: no"))
    until(lambda: b'rheostat_reloads_total{result="failed"}' in ask(gateway.url, "/metrics").body)
    assert model() == "fast"
    gateway.config.write_text(good)
    gateway.process.send_signal(signal.SIGHUP)
    until(lambda: model() == "large")


def test_a_change_while_the_models_load_is_not_lost(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "impatient.py").write_text(
        "from pathlib import Path\n"
        "config = Path(__file__).with_name('rheostat.yaml')\n"
        "config.write_text(config.read_text().replace('threshold: 0.9', 'threshold: 0.4'))\n"
        "def score(request): return 0.5\n"
    )
    gateway = launch('signals: {late: {scorer: python, callable: "impatient:score"}}\n')
    assert "threshold: 0.4" in gateway.config.read_text()
    until(lambda: ask(gateway.url, body={"data": "sure?"}).headers["x-rheostat-model"] == "fast")
