"""`rheostat alerts`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from rheostat.cli.admin_port import address, asked
from rheostat.cli.console import say, say_json, told


@told
def alerts(
    accept: Annotated[
        str | None, typer.Option(help="End the alert of this id: what happens now is usual from now on.", metavar="ID")
    ] = None,
    records: Annotated[
        str | None, typer.Option(help="Instead of asking a gateway, go through these records: a .sqlite or a .jsonl file.")
    ] = None,
    config: Annotated[
        str, typer.Option(help="The config: the gateway's admin address and secret, and what it says about `watch`.")
    ] = "rheostat.yaml",
    admin: Annotated[str | None, typer.Option(help="Another admin address, such as http://127.0.0.1:9090.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what is not as usual in a gateway's traffic, or what would have rung over stored records.

    Example: `rheostat alerts`, `rheostat alerts --accept 3f09c1`, or `rheostat alerts --records records.sqlite`
    """
    from rheostat.config import load_config

    if records is not None:
        if accept is not None:
            raise typer.BadParameter("--accept is for a running gateway, not for --records")
        _replay(records, config, as_json)
        return
    settings = load_config(config).config.admin
    url = admin.rstrip("/") if admin is not None else address(settings)
    if accept is not None:
        done = asked("POST", f"{url}/admin/alerts/{accept}/accept", settings)["alert"]
        say_json(done) if as_json else say(f"{done['kind']} of {done['subject']} is over: that is usual now")
        return
    found = asked("GET", f"{url}/admin/alerts", settings)
    if as_json:
        say_json(found)
        return
    if not found["ringing"]:
        say("nothing rings")
    for each in found["ringing"]:
        _tell(each)
    for each in found["ended"][:10]:
        say(f"over since {_when(each['ended'])}: {each['kind']}, {each['subject']}")


def _replay(records: str, config: str, as_json: bool) -> None:
    from pathlib import Path

    import msgspec

    from rheostat.config import load_config
    from rheostat.lab.records import read_entries
    from rheostat.watch import Watch

    settings = load_config(config).config.watch if Path(config).exists() else None
    changes = Watch(settings).replay(read_entries(records))
    rows = [{"what": change.what, **msgspec.to_builtins(change.alert)} for change in changes]
    if as_json:
        say_json(rows)
        return
    if not rows:
        say("nothing would have rung")
    for row in rows:
        if row["what"] == "raised":
            _tell(row)
        else:
            say(f"{_when(row['ended'])}  over: {row['kind']}, {row['subject']}")


def _tell(each: dict[str, Any]) -> None:
    say(f"{_when(each['since'])}  {each['severity']}  {each['kind']}, {each['subject']}  ({each['id']})")
    say(f"    {each['text']}")
    say(f"    {each['advice']}")


def _when(wall: float) -> str:
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
