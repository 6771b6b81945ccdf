"""predict, explain and serve."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run


@pytest.mark.usefixtures("place")
def test_predict_tells_the_decision_and_explain_tells_it_again(run: Run) -> None:
    told = run(["predict", "rheostat.yaml", "Breakpoints stop the debugger.", "--meta", "channel=mail"]).stdout
    assert "call fast, because cheapest first" in told
    assert "channel='mail'" in told
    assert "answer: 'debugging'" in told
    assert run(["explain", "--last"]).stdout == told
    record = json.loads(run(["explain", "--last", "--json"]).stdout)["record"]
    assert run(["explain", record["id"], "--records", "records.sqlite"]).stdout == told
    assert "has no request 'nobody'" in run(["explain", "nobody"], code=1).stderr


@pytest.mark.usefixtures("place")
def test_predict_reads_standard_input_and_can_be_forced(run: Run) -> None:
    record = json.loads(run(["predict", "rheostat.yaml", "-", "--json", "--force-model", "large"], text="a text\n").stdout)
    assert record["selected_model"] == "large"
    assert record["input"]["length"] == 6
    assert "no model named 'lareg'" in run(["predict", "rheostat.yaml", "x", "--force-model", "lareg"], code=1).stdout
    assert "NAME=VALUE" in run(["predict", "rheostat.yaml", "x", "--meta", "x"], code=2).stderr
    assert "must be JSON" in run(["predict", "rheostat.yaml", "{", "--features"], code=2).stderr


def test_explain_reads_json_lines_with_feedback(place: Path, run: Run) -> None:
    from rheostat.telemetry import JsonlSink
    from rheostat.types import Feedback

    text = (place / "rheostat.yaml").read_text().replace("sqlite: records.sqlite", "jsonl: records.jsonl")
    (place / "lines.yaml").write_text(text)
    record = json.loads(run(["predict", "lines.yaml", "Strings are immutable.", "--json"]).stdout)
    sink = JsonlSink(place / "records.jsonl")
    sink.write([Feedback(request_id=record["id"], label="strings", source="a reader")])
    sink.close()
    told = run(["explain", record["id"], "--records", "records.jsonl"]).stdout
    assert "feedback (a reader)" in told
    assert ("the answer was right" if record["label"] == "strings" else "the answer was wrong") in told
    assert run(["explain", "--last", "--config", "lines.yaml"]).stdout == told


def test_explain_says_where_records_could_be(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "name them with" in run(["explain", "--last"], code=2).stderr
    assert "or --last" in run(["explain"], code=2).stderr
    assert "absent or empty" in run(["explain", "--last", "--records", "none.sqlite"], code=1).stderr
    assert "none.jsonl" in run(["explain", "--last", "--records", "none.jsonl"], code=1).stderr


def ask(port: int, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=5) as answer:
        return json.loads(answer.read())


def wait_until_ready(port: int, process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 60.0
    while time.monotonic() < until and process.poll() is None:
        try:
            ask(port, "/health/ready")
            return
        except (OSError, urllib.error.URLError):
            time.sleep(0.05)
    process.kill()
    raise AssertionError(process.communicate()[1])


def test_a_taken_admin_port_is_named_as_such(place: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        admin = f"admin: {{secret: a-secret-of-many-letters, port: {port}}}\n"
        (place / "admin.yaml").write_text((place / "rheostat.yaml").read_text() + admin)
        command = [sys.executable, "-m", "rheostat", "serve", "admin.yaml", "--port", "0"]
        busy = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    assert busy.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}: " in busy.stderr
    assert "choose another address with `admin.host` or `admin.port`" in busy.stderr


def test_serve_answers_and_stops_in_order(place: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "rheostat", "serve", "--port", str(port), "--log-form", "plain"]
        taken.listen()
        busy = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    assert busy.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}: " in busy.stderr
    assert "choose another address with --host or --port" in busy.stderr
    assert "Traceback" not in busy.stderr
    process = subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until_ready(port, process)
    answer = ask(port, "/v1/predict", {"data": "Breakpoints stop the debugger."})
    assert answer["data"]["final_label"] == "debugging"
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=30)
    assert process.returncode == 0
    assert f"serving on http://127.0.0.1:{port}" in log
    explain = [sys.executable, "-m", "rheostat", "explain", answer["request_id"]]
    told = subprocess.run(explain, cwd=place, capture_output=True, text=True, check=True).stdout
    assert "answer: 'debugging'" in told
