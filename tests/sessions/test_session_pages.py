"""The operator sees which conversations are kept, and deletes one; nothing that was said is shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rheostat.cli.app import app
from rheostat.gateway.handle import ServerHandle
from tests.chat.chat_servers import Chats, ask, hello, model

SECRET = "an admin secret of some length"


@pytest.mark.parametrize("name", ["customer 17", "a/b?c=%41", "客户"])
def test_a_session_is_listed_and_deleted_by_its_name(name: str, tmp_path: Path) -> None:
    server = Chats()
    config = tmp_path / "rheostat.yaml"
    config.write_text(
        f"task: chat\nmodels: {{a: {model(server)}}}\nroutes: {{default: {{policy: a, session: {{}}}}}}\n"
        f'admin: {{secret: "{SECRET}", port: 0}}\nkeys: [{{key: a-key-of-one, tenant: "one/two"}}]\n'
    )
    with ServerHandle(str(config)) as handle:

        def run(*words: str, code: int = 0) -> str:
            result = CliRunner().invoke(
                app, ["sessions", *words, "--config", str(config), "--admin", handle.admin_url or ""]
            )
            assert result.exit_code == code, result.output
            assert SECRET not in result.output
            return result.stdout

        headers = {"x-rheostat-session": name.encode().decode("latin-1"), "authorization": "Bearer a-key-of-one"}
        assert ask(handle.url, hello("my number is 4711"), headers).status == 200
        (found,) = json.loads(run("--json"))["sessions"]
        assert (found["tenant"], found["turns"], found["busy"]) == ("one/two", 1, False)
        assert "4711" not in run("--json")
        assert "one/two" in run()
        run("--delete", found["name"], code=1)  # no tenant's
        run("--delete", found["name"], "--tenant", "one/two")
        assert json.loads(run("--json"))["sessions"] == []
        assert ask(handle.url, hello("which?"), headers).headers["x-rheostat-history"] == "0"
    server.close()
