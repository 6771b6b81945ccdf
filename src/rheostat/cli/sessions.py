"""`rheostat sessions`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from rheostat.cli.admin_port import address, asked
from rheostat.cli.console import say, say_json, say_table, told


@told
def sessions(
    delete: Annotated[str | None, typer.Option(help="Delete the session of this name.", metavar="NAME")] = None,
    tenant: Annotated[str | None, typer.Option(help="Whose session to delete, where it has a tenant.")] = None,
    config: Annotated[str, typer.Option(help="The config of the gateway: its admin address and secret.")] = "rheostat.yaml",
    admin: Annotated[str | None, typer.Option(help="Another admin address, such as http://127.0.0.1:9090.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the conversations that a running gateway keeps, without what was said in them; delete one.

    Example: `rheostat sessions`, or `rheostat sessions --delete customer-17`
    """
    from urllib.parse import quote

    from rheostat.config import load_config

    if tenant is not None and delete is None:
        raise typer.BadParameter("--tenant goes with --delete")
    settings = load_config(config).config.admin
    url = f"{admin.rstrip('/') if admin is not None else address(settings)}/admin/sessions"
    if delete is not None:
        parts = [quote(part, safe="") for part in (tenant, delete) if part is not None]
        asked("DELETE", "/".join((url, *parts)), settings)
        say(f"the session {delete!r} is deleted")
        return
    found = asked("GET", url, settings)
    if as_json:
        say_json(found)
        return
    rows = [
        (each["name"], each["tenant"] or "-", str(each["turns"]), str(each["bytes"]), _when(each["used"]))
        for each in found["sessions"]
    ]
    say_table(("session", "tenant", "turns", "bytes", "last turn"), rows)


def _when(wall: float) -> str:
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
