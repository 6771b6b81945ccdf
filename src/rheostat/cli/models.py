"""`rheostat models`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from rheostat.cli.admin_port import address, asked
from rheostat.cli.console import say, say_json, say_table, told


@told
def models(
    action: Annotated[
        Literal["list", "load", "unload", "pin", "unpin"], typer.Argument(help="What to do.", metavar="ACTION")
    ] = "list",
    name: Annotated[str | None, typer.Argument(help="The model, except for list.", metavar="NAME")] = None,
    config: Annotated[str, typer.Option(help="The config of the gateway: its admin address and secret.")] = "rheostat.yaml",
    admin: Annotated[str | None, typer.Option(help="Another admin address, such as http://127.0.0.1:9090.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show which models of a running gateway are in memory; load, unload, pin or unpin one that is loaded on demand.

    ACTION is list, load, unload, pin or unpin. A pinned model stays in memory until it is unpinned. Exit code 1: it was not
    done, and why.

    Example: `rheostat models`, or `rheostat models load large`
    """
    from urllib.parse import quote

    from rheostat.config import load_config

    if (name is None) != (action == "list"):
        raise typer.BadParameter("list takes no model's name" if action == "list" else f"{action} which model? Name one")
    settings = load_config(config).config.admin
    url = admin.rstrip("/") if admin is not None else address(settings)
    if name is None:
        found = asked("GET", f"{url}/admin/models", settings)["models"]
        say_json(found) if as_json else _table(found)
        return
    done = asked("POST", f"{url}/admin/models/{quote(name, safe='')}/{action}", settings)
    say_json(done) if as_json else say(_line(done["model"]))


def _table(found: list[dict[str, Any]]) -> None:
    head = ("model", "version", "state", "MiB", "last used", "loads", "evictions", "")
    say_table(head, [(each["name"], each["version"], *_cells(each)) for each in found])
    why = [f"{each['name']}: {each['why']}" for each in found if each.get("why")]
    for line in why:
        say(line)


def _cells(each: dict[str, Any]) -> tuple[str, ...]:
    state, ago = each["state"], each.get("used_s_ago")
    size = "-" if state == "remote" or not each["bytes"] else f"{each['bytes'] / 2**20:.0f}"
    used = "-" if ago is None else f"{ago:.0f} s ago"
    counts = [str(each[name]) if name in each else "-" for name in ("loads", "evictions")]
    return state, size, used, *counts, "pinned" if each.get("pinned") else ""


def _line(each: dict[str, Any]) -> str:
    pinned = ", pinned" if each["pinned"] else ""
    return f"{each['name']} is {each['state']}{pinned}; it takes {each['bytes'] / 2**20:.0f} MiB when it is in memory"
