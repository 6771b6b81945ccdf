"""The operator lists versions, sees how they differ, and goes back: by the admin port and by the command line."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rheostat.cli.app import app
from rheostat.gateway.handle import ServerHandle

SECRET = "an admin secret of some length"
CONFIG = """\
models: {{m: {{backend: python, callable: "said:{word}"}}}}
routes: {{default: {{policy: m}}}}
versions: {{path: kept/versions.sqlite}}
admin: {{secret: "{secret}", port: 0}}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    said = [f"def {word}(rows): return [('{word}', 0.9) for _ in rows]" for word in ("one", "two")]
    (tmp_path / "said.py").write_text("\n".join(said))
    path = tmp_path / "rheostat.yaml"
    path.write_text(CONFIG.format(word="one", secret=SECRET))
    return path


@pytest.fixture
def gateway(config: Path) -> Iterator[ServerHandle]:
    with ServerHandle(str(config)) as handle:
        yield handle


def page(gateway: ServerHandle, path: str, body: bytes | None = None, method: str = "GET") -> tuple[int, Any]:
    headers = {"authorization": f"Bearer {SECRET}", **({"content-type": "application/json"} if body else {})}
    request = urllib.request.Request(f"{gateway.admin_url}/admin/{path}", body, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def run(config: Path, *words: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, [*words, "--config", str(config)])
    assert result.exit_code == code, result.output
    assert SECRET not in result.output
    return result.output


def changed(gateway: ServerHandle, config: Path) -> str:
    """Have the gateway take up another config; return its version."""
    config.write_text(CONFIG.format(word="two", secret=SECRET))
    status, said = page(gateway, "reload", method="POST")
    assert (status, said["reloaded"]) == (200, True)
    version: str = said["config_version"]
    return version


def test_going_back_by_the_command_line(gateway: ServerHandle, config: Path) -> None:
    second = changed(gateway, config)
    found = json.loads(run(config, "versions", "--json"))
    assert found["file"] == second
    assert [each["action"] for each in found["changes"]] == ["serve", "serve"]
    first = found["changes"][1]["version"]
    shown = run(config, "diff", first[:6], second)
    assert '-models: {m: {backend: python, callable: "said:one"}}' in shown
    assert '+models: {m: {backend: python, callable: "said:two"}}' in shown
    assert "the same" in run(config, "diff")  # the file, and what served last
    run(config, "diff", "ffffff", code=1)
    told = run(config, "rollback", "--why", "worse answers", "--admin", gateway.admin_url or "")
    assert told == f"version {first} serves now, in the place of {second}\n"
    listed = run(config, "versions")
    assert "worse answers" in listed
    assert f"{first} serves in the place of the file" in listed
    assert "serves now" in run(config, "rollback", "file", "--admin", gateway.admin_url or "")
    assert "in the place of the file" not in run(config, "versions")


def test_the_pages(gateway: ServerHandle, config: Path) -> None:
    second = changed(gateway, config)
    status, listed = page(gateway, "versions")
    first = listed["changes"][1]["version"]
    assert (status, listed["serving"], listed["pinned"], listed["state"]) == (200, second, None, "ok")
    assert "said:two" in page(gateway, f"versions/{first}/diff/{second}")[1]["diff"]
    no_pages = (("versions/x/diff/y", "GET"), (f"versions/{first}", "GET"), ("versions", "POST"), ("rollback", "GET"))
    for path, method in no_pages:
        assert page(gateway, path, method=method)[0] == 404
    for body in (b"{", b"[]", b'{"versoin": "x"}', b'{"version": 3}'):
        status, said = page(gateway, "rollback", body, "POST")
        assert (status, said["error"]["type"]) == (400, "invalid_request")
    assert page(gateway, "rollback", b'{"version": "0000"}', "POST")[0] == 404
    status, said = page(gateway, "rollback", method="POST")
    assert (status, said["rolled_back"], said["version"], said["before"]) == (200, True, first, second)
    status, said = page(gateway, "reload", method="POST")
    assert (status, said["reloaded"], said["config_version"]) == (422, False, first)
    assert "rheostat rollback file" in said["error"]


def test_without_versions_the_way_to_them_is_told(tmp_path: Path) -> None:
    path = tmp_path / "rheostat.yaml"
    (tmp_path / "said.py").write_text("def one(rows): return [('one', 0.9) for _ in rows]")
    path.write_text(CONFIG.format(word="one", secret=SECRET).replace("versions: {path: kept/versions.sqlite}\n", ""))
    assert "versions: {path: versions.sqlite}" in run(path, "versions", code=1)
    with ServerHandle(str(path)) as gateway:
        status, said = page(gateway, "versions")
        assert (status, "versions: {path" in said["error"]["message"]) == (404, True)
