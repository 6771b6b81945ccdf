"""Alerts of a gateway that runs, and of records that were kept."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rheostat.cli.app import app
from rheostat.config import load_config
from rheostat.gateway.handle import ServerHandle
from rheostat.telemetry import JsonlSink, SqliteSink
from rheostat.types import RouteRecord
from rheostat.watch import Watch
from tests.watch.traffic import Traffic

SECRET = "an admin secret of some length"
GUIDE = (Path(__file__).parents[2] / "docs/guides/watching.md").read_text()
CONFIG = f"""
models:
  small: {{backend: rules, labels: ["yes", "no"], keywords: {{"yes": [x]}}, default: {{label: "no", confidence: 0.5}}}}
routes: {{default: {{policy: small}}}}
admin: {{secret: "{SECRET}", port: 0}}
"""


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[ServerHandle]:
    path = tmp_path / "rheostat.yaml"
    path.write_text(CONFIG + "watch: {window: 10s, usual: 60s}\n")
    with ServerHandle(str(path)) as handle:
        yield handle


def asked(handle: ServerHandle, path: str, method: str = "GET") -> dict[str, object]:
    url = f"{handle.admin_url}{path}"
    request = urllib.request.Request(url, method=method, headers={"authorization": f"Bearer {SECRET}"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        found: dict[str, object] = json.loads(answer.read())
        return found


def test_a_gateway_tells_its_percentiles_and_that_nothing_rings(gateway: ServerHandle) -> None:
    body = json.dumps({"data": "x"}).encode()
    for _ in range(5):
        request = urllib.request.Request(f"{gateway.url}/v1/predict", body, {"content-type": "application/json"})
        urllib.request.urlopen(request, timeout=10).read()
    until = time.monotonic() + 10.0
    while True:
        found = asked(gateway, "/admin/alerts")
        rows = {(each["what"], each["name"]): each for each in found["latency"]}  # type: ignore[attr-defined]
        if rows.get(("route", "default"), {"count": 0})["count"] == 5:
            break
        assert time.monotonic() < until
        time.sleep(0.05)
    assert found["ringing"] == []
    assert 0.0 < rows["model", "small"]["p50_s"] <= rows["model", "small"]["p99_s"] < 1.0
    page = urllib.request.urlopen(f"{gateway.url}/metrics", timeout=10).read().decode()
    assert 'rheostat_alerts{kind="share_drift"} 0' in page
    with pytest.raises(urllib.error.HTTPError, match="404"):
        asked(gateway, "/admin/alerts/nothing/accept", "POST")


def test_what_is_not_watched_says_how(tmp_path: Path) -> None:
    path = tmp_path / "rheostat.yaml"
    path.write_text(CONFIG)
    with ServerHandle(str(path)) as handle:
        with pytest.raises(urllib.error.HTTPError) as refused:
            asked(handle, "/admin/alerts")
        assert "watch: {}" in refused.value.read().decode()


@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
def test_records_that_were_kept_tell_what_would_have_rung(kind: str, tmp_path: Path) -> None:
    traffic = Traffic(3)
    entries: list[RouteRecord] = list(traffic.records(40_000.0, 41_800.0))
    traffic.escalated = 0.08
    entries += traffic.records(41_800.0, 42_700.0)
    path = tmp_path / f"records.{kind}"
    sink = JsonlSink(path) if kind == "jsonl" else SqliteSink(path)
    sink.write(entries)
    sink.write([traffic.feedback(entries[0])])
    sink.close()
    result = CliRunner().invoke(app, ["alerts", "--records", str(path), "--config", str(tmp_path / "none.yaml"), "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert ("raised", "share_drift", "route default, model large") in {
        (row["what"], row["kind"], row["subject"]) for row in found
    }
    told = CliRunner().invoke(app, ["alerts", "--records", str(path), "--config", str(tmp_path / "none.yaml")])
    assert "of the requests asked large" in told.stdout


def test_the_guide_names_every_alert_and_its_setting_is_one(tmp_path: Path) -> None:
    for kind in Watch().counts():
        assert f"`{kind}`" in GUIDE
    (block,) = [part.split("```")[0] for part in GUIDE.split("```yaml\n")[1:]]
    (tmp_path / "rheostat.yaml").write_text(CONFIG + block)
    assert load_config(str(tmp_path / "rheostat.yaml")).config.watch is not None
