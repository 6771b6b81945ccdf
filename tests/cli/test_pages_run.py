"""README and tutorial, done as they are written: their files are saved, their commands run, in their order."""

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

PROJECT = Path(__file__).parents[2]
README, TUTORIAL = PROJECT / "README.md", PROJECT / "docs" / "tutorials" / "your-own-data.md"
BLOCK = re.compile(r"^```(?P<kind>\w+) ?(?P<rest>[^\n]*)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    kind: str
    rest: str
    body: str


def blocks(page: Path) -> list[Block]:
    """The blocks of a page: `file=NAME` is saved, `background` goes on running, other bash and python is run."""
    text = page.read_text(encoding="utf-8")
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
        elif block.kind in ("bash", "python"):
            command = ["bash", "-e", "-o", "pipefail", "-c", body] if block.kind == "bash" else [sys.executable, "-c", body]
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


def follow(page: Path, shell: Shell) -> str:
    """Do all that a page says; return what the commands printed."""
    try:
        for block in blocks(page):
            shell.do(block)
    finally:
        shell.end()
    return shell.said


def test_the_readme_goes_through(shell: Shell) -> None:
    said = follow(README, shell)
    assert "rheostat.yaml can be used" in said
    assert "answered, on the route 'default'" in said
    assert '"final_label":' in said


def test_the_tutorial_goes_through_from_a_csv_to_a_gateway_and_an_own_policy(shell: Shell) -> None:
    said = follow(TUTORIAL, shell)
    assert "rheostat.yaml can be used" in said
    assert "outcomes.parquet: 1" in said
    assert "verdict: it pays on fresh rows" in said
    assert '"final_label":"debugging"' in said
    assert "the right label is 'debugging': the answer was right" in said
    assert "my_policies.LongGoesLarge(small='fast', large='large', limit=200)" in said
    assert "decided by: long-goes-large" in said
    assert "flowers.parquet: " in said
    assert "answer: 'virginica'" in said
    assert (shell.folder / "report.html").stat().st_size > 10_000


def test_the_own_policy_has_ten_lines() -> None:
    policy = next(block for block in blocks(TUTORIAL) if block.rest == "file=my_policies.py")
    body = policy.body.split("class ", 1)[1]
    assert len([line for line in body.splitlines() if line.strip()]) <= 10


@pytest.mark.parametrize("page", [README, TUTORIAL], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
        assert target.startswith("http") or (page.parent / target).exists(), target
