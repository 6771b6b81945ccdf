"""`rheostat versions`, `rheostat diff` and `rheostat rollback`."""

from __future__ import annotations

import contextlib
import getpass
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from rheostat.cli.admin_port import address, asked
from rheostat.cli.console import note, say, say_json, say_table, told

if TYPE_CHECKING:
    import sqlite3

    from rheostat.config.load import Loaded

_WORDS = {"serve": "taken up", "rollback": "gone back to", "release": "the file again"}
Config = Annotated[str, typer.Option(help="The config file whose versions are meant.", metavar="CONFIG")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@told
def versions(
    last: Annotated[int, typer.Option(help="How many changes to show.", min=1)] = 20,
    config: Config = "rheostat.yaml",
    as_json: AsJson = False,
) -> None:
    """Show which versions of a config served, since when, who changed it and why; the last first.

    Reads the file of `versions.path`; no gateway need run.

    Example: `rheostat versions --last 5`
    """
    import msgspec

    from rheostat.config import load_config
    from rheostat.versions.store import list_changes, pin_of

    loaded = load_config(config)
    with _store(loaded) as database:
        found, pin = list_changes(database, last), pin_of(database)
    if as_json:
        pinned = None if pin is None else msgspec.to_builtins(pin)
        say_json({"file": loaded.version, "pinned": pinned, "changes": msgspec.to_builtins(found)})
        return
    rows = [(each.version, _when(each.wall), _WORDS[each.action], each.who or "-", each.why or "-") for each in found]
    say_table(("version", "since", "what", "who", "why"), rows)
    if pin is not None and pin.instead_of == loaded.version:
        say(f"{pin.version} serves in the place of the file; `rheostat rollback file` serves the file again")


@told
def diff(
    before: Annotated[str | None, typer.Argument(help="A version, or the beginning of its name.", metavar="A")] = None,
    after: Annotated[str | None, typer.Argument(help="Another; default: the file as it is now.", metavar="B")] = None,
    config: Config = "rheostat.yaml",
) -> None:
    """Show how two versions of a config differ, or one and the file as it is now; secrets are hidden.

    Without A: the last version that served.

    Example: `rheostat diff`, or `rheostat diff 3f2a 91bc`
    """
    from rheostat.config import load_config
    from rheostat.config.difference import difference
    from rheostat.errors import NotFound
    from rheostat.telemetry import Masker
    from rheostat.versions.store import Version, find_version, list_changes

    loaded = load_config(config)
    with _store(loaded) as database:
        if before is None:
            changes = list_changes(database, 1)
            if not changes:
                raise NotFound("no version has served yet")
            before = changes[0].version
        old = find_version(database, before)
        new = Version("file", loaded.sources) if after is None else find_version(database, after)
    found = difference(old.sources, new.sources, (old.version, new.version), Masker(loaded.secrets).mask)
    say(found) if found else note(f"{old.version} and {new.version} are the same")


@told
def rollback(
    version: Annotated[
        str | None,
        typer.Argument(help="The version, or the beginning of its name; `file`: what the file says.", metavar="VERSION"),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Only this model as it was then.", metavar="NAME")] = None,
    why: Annotated[str, typer.Option(help="The reason, for whoever looks later.")] = "",
    config: Config = "rheostat.yaml",
    admin: Annotated[str | None, typer.Option(help="Another admin address, such as http://127.0.0.1:9090.")] = None,
    as_json: AsJson = False,
) -> None:
    """Serve an earlier version of the config again, in every gateway of this config; without VERSION the last good one.

    It stays so, over restarts too, until the file is changed or `rheostat rollback file` serves the file again. With --model
    only that model's settings go back, by default to the last version in which they were different.

    Example: `rheostat rollback --why "more errors since noon"`, or `rheostat rollback 3f2a`
    """
    from rheostat.config import load_config

    settings = load_config(config).config.admin
    url = f"{admin.rstrip('/') if admin is not None else address(settings)}/admin/rollback"
    body = {"version": version, "model": model, "who": _user(), "why": why}
    done = asked("POST", url, settings, body)
    if as_json:
        say_json(done)
        return
    say(f"version {done['version']} serves now, in the place of {done['before']}")
    for name in done["changed"]:
        note(f"model {name}: its files are not as they were when that version served")


@contextlib.contextmanager
def _store(loaded: Loaded) -> Iterator[sqlite3.Connection]:
    """Open the file of versions.

    Raises:
        NotFound: none are kept.
    """
    from pathlib import Path

    from rheostat.errors import NotFound
    from rheostat.sqlite_file import connect
    from rheostat.versions.store import LAYOUT

    settings = loaded.config.versions
    if settings is None:
        raise NotFound("no versions are kept: add `versions: {path: versions.sqlite}` to the config")
    path = Path(loaded.base) / settings.path
    if not path.exists():
        raise NotFound(f"no version has served yet: there is no {path}")
    with contextlib.closing(connect(str(path), LAYOUT)) as database:
        yield database


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container without a name for its user
        return ""


def _when(wall: float) -> str:
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
