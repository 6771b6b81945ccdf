"""The tutorial, done as it is written: its files are saved, its commands run, in its order."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import NamedTuple

import pytest

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorials" / "your-own-data.md"
BLOCK = re.compile(r"^```(?P<kind>\w+) ?(?P<rest>[^\n]*)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    kind: str
    rest: str
    body: str


def blocks() -> list[Block]:
    text = TUTORIAL.read_text(encoding="utf-8")
    return [Block(found["kind"], found["rest"], found["body"]) for found in BLOCK.finditer(text)]


class Shell:
    """A folder in which blocks are run one after another; `said` is what the commands printed."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.env = {**os.environ, "PATH": path}
        self.background: list[subprocess.Popen[bytes]] = []
        self.said = ""

    def do(self, block: Block) -> None:
        body = block.body.replace("8080", str(self.port))
        if block.rest.startswith("file="):
            (self.folder / block.rest.removeprefix("file=")).write_text(body, encoding="utf-8")
        elif block.rest == "background":
            log = (self.folder / "background.log").open("wb")
            self.background.append(
                subprocess.Popen(["bash", "-c", f"exec {body}"], cwd=self.folder, env=self.env, stdout=log, stderr=log)
            )
            self.wait()
        elif block.kind == "bash":
            command = ["bash", "-e", "-o", "pipefail", "-c", body]
            done = subprocess.run(command, cwd=self.folder, env=self.env, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{body}\n{done.stdout}\n{done.stderr}"
            self.said += done.stdout

    def wait(self) -> None:
        until = time.monotonic() + 60.0
        while time.monotonic() < until:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health/ready", timeout=2).close()
                return
            except OSError:
                assert self.background[-1].poll() is None, (self.folder / "background.log").read_text()
                time.sleep(0.1)
        raise AssertionError("the gateway did not become ready")

    def end(self) -> None:
        for process in self.background:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return Shell(tmp_path, free.getsockname()[1])


def test_the_tutorial_goes_through_from_a_csv_to_a_gateway_and_an_own_policy(shell: Shell) -> None:
    try:
        for block in blocks():
            shell.do(block)
    finally:
        shell.end()
    said = shell.said
    assert "rheostat.yaml can be used" in said
    assert "outcomes.parquet: 1" in said
    assert "verdict: it pays on fresh rows" in said
    assert '"final_label":"debugging"' in said
    assert "the right label is 'debugging': the answer was right" in said
    assert "my_policies.LongGoesLarge(small='fast', large='large', limit=200)" in said
    assert "decided by: long-goes-large" in said
    assert (shell.folder / "report.html").stat().st_size > 10_000


def test_the_own_policy_has_ten_lines_and_links_lead_somewhere() -> None:
    policy = next(block for block in blocks() if block.rest == "file=my_policies.py")
    body = policy.body.split("class ", 1)[1]
    assert len([line for line in body.splitlines() if line.strip()]) <= 10
    for target in re.findall(r"\]\(([^)#]+)", TUTORIAL.read_text(encoding="utf-8")):
        assert (TUTORIAL.parent / target).exists(), target
