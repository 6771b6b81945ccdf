"""`rheostat models` and the admin pages behind it, against a gateway that runs."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rheostat.gateway.handle import ServerHandle
from tests.cli.conftest import Run

SECRET = "an admin secret of some length"
MODELS = """
class Large:
    def __init__(self):
        self.weights = bytearray(20_000_000)

    def __call__(self, rows):
        return [("yes", 0.9) for _ in rows]


def small(rows):
    return [("no", 0.6) for _ in rows]
"""
CONFIG = f"""
models:
  large: &large {{backend: python, callable: "cli_residents:Large", labels: ["yes", "no"], version: "7", resident: false}}
  org/other: {{<<: *large, preload: true}}
  small: {{backend: python, callable: "cli_residents:small", labels: ["yes", "no"]}}
  far: {{backend: openai, base_url: "http://127.0.0.1:9/v1", model: m, labels: ["yes", "no"]}}
routes: {{default: {{policy: large, models: [large, small]}}}}
admin: {{secret: "{SECRET}", port: 0}}
"""


class Gateway:
    """A gateway, and the verb that talks to it."""

    def __init__(self, handle: ServerHandle, run: Run, config: Path) -> None:
        self.handle, self.run, self.config = handle, run, config

    def models(self, *words: str, code: int = 0) -> str:
        where = ("--config", str(self.config), "--admin", self.handle.admin_url or "")
        result = self.run(["models", *words, *where], code=code)
        assert SECRET not in result.output
        return result.stdout if code == 0 else result.stderr

    def ask(self, base: str, path: str, *, body: Any = None, method: str | None = None) -> tuple[int, str]:
        headers = {"authorization": f"Bearer {SECRET}", "content-type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(base + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def predict(self) -> str:
        status, body = self.ask(self.handle.url, "/v1/predict", body={"data": "hello"})
        assert status == 200
        return str(json.loads(body)["data"]["route_info"]["selected_model"])


@pytest.fixture
def gateway(tmp_path: Path, run: Run) -> Iterator[Gateway]:
    (tmp_path / "cli_residents.py").write_text(MODELS)
    (tmp_path / "rheostat.yaml").write_text(CONFIG)
    with ServerHandle(str(tmp_path / "rheostat.yaml")) as handle:
        yield Gateway(handle, run, tmp_path / "rheostat.yaml")


def states(text: str) -> dict[str, str]:
    lines = [line.split() for line in text.splitlines()[1:]]
    return {line[0]: line[2] for line in lines}


def test_a_model_is_shown_loaded_pinned_and_unloaded(gateway: Gateway) -> None:
    assert states(gateway.models()) == {
        "large": "unloaded", "org/other": "loaded", "small": "resident", "far": "remote",
    }  # fmt: skip
    assert gateway.predict() == "large"
    assert states(gateway.models())["large"] == "loaded"
    assert gateway.models("unload", "large").startswith("large is unloaded; it takes ")
    assert gateway.models("load", "large").startswith("large is loaded; it takes ")
    assert "loaded, pinned" in gateway.models("pin", "large")
    assert gateway.models("unload", "large", code=1) == "it is pinned: unpin it first\n"
    assert gateway.models("unpin", "large").startswith("large is loaded;")
    assert gateway.models("unload", "org/other").startswith("org/other is unloaded")
    large = next(each for each in json.loads(gateway.models("--json")) if each["name"] == "large")
    assert {name: large[name] for name in ("state", "version", "pinned", "loads", "users")} == {
        "state": "loaded", "version": "7", "pinned": False, "loads": 3, "users": 0,
    }  # fmt: skip
    assert large["bytes"] > 5_000_000


def test_what_cannot_be_done_says_why(gateway: Gateway) -> None:
    assert "model small: it is always in memory: set `resident: false`" in gateway.models("load", "small", code=1)
    assert "model far: it is not in this process" in gateway.models("pin", "far", code=1)
    assert "there is no model 'nobody'; known: large, org/other, small, far" in gateway.models("load", "nobody", code=1)
    assert "load which model? Name one" in gateway.models("load", code=2)
    assert "list takes no model's name" in gateway.models("list", "large", code=2)
    gateway.config.write_text(CONFIG.replace(SECRET, "another secret of some length"))
    assert "is the secret of this config the gateway's?" in gateway.models(code=1)
    gateway.config.write_text(CONFIG.replace(f'admin: {{secret: "{SECRET}", port: 0}}', ""))
    assert "the config has no `admin.secret`" in gateway.models(code=1)


def test_nobody_at_the_address(gateway: Gateway, run: Run) -> None:
    gone = run(["models", "--config", str(gateway.config), "--admin", "http://127.0.0.1:9"], code=1).stderr
    assert re.search(r"no gateway answers at http://127\.0\.0\.1:9: .*refused; is it running\?", gone)
    assert "--admin" in run(["models", "--config", str(gateway.config)], code=2).stderr


def test_the_pages(gateway: Gateway) -> None:
    admin = gateway.handle.admin_url or ""
    assert gateway.ask(admin, "/admin/models/large/load", method="POST")[0] == 200
    status, body = gateway.ask(admin, "/admin/models/small/load", method="POST")
    assert status == 409
    assert json.loads(body)["done"] is False
    assert gateway.ask(admin, "/admin/models/large/load", method="GET")[0] == 404
    for page in ("", "/nobody/load", "/large/melt", "/large"):
        assert gateway.ask(admin, f"/admin/models{page}", method="POST")[0] == 404, page
    status = json.loads(gateway.ask(admin, "/admin/status")[1])["models"]["large"]["residency"]
    assert (status["state"], status["loads"]) == ("loaded", 2)
    page = gateway.ask(gateway.handle.url, "/metrics")[1]
    assert 'rheostat_loads_total{model="large"} 2\n' in page
    assert 'rheostat_evictions_total{model="large"} 0\n' in page
    (size,) = re.findall(r'rheostat_memory_bytes\{model="large"\} (\d+)', page)
    assert int(size) == status["bytes"] > 5_000_000  # it makes 20 MB; other threads of the tests take and give as well
    assert 'rheostat_memory_bytes{model="far"} 0\n' in page
    assert "small" not in re.findall(r"rheostat_loads_total.*", page)
