"""`rheostat models`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rheostat.cli.console import say, say_json, say_table, told

if TYPE_CHECKING:
    from rheostat.config.schema import AdminSettings

TIMEOUT_S = 120.0
"""A load takes as long as it takes, and waits for others before it."""
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # what a server listens on is no address to call


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
    url = admin.rstrip("/") if admin is not None else _address(settings)
    if name is None:
        found = _asked("GET", f"{url}/admin/models", settings)["models"]
        say_json(found) if as_json else _table(found)
        return
    done = _asked("POST", f"{url}/admin/models/{quote(name, safe='')}/{action}", settings)
    say_json(done) if as_json else say(_line(done["model"]))


def _address(settings: AdminSettings) -> str:
    if not settings.port:
        raise typer.BadParameter("the config says `admin.port: 0`, any free port: name the gateway's with --admin")
    host = _ANYWHERE.get(settings.host, settings.host)
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"


def _asked(method: str, url: str, settings: AdminSettings) -> Any:
    """Ask the admin port.

    Raises:
        NotFound, Unauthorized: it said so.
        RheostatError: it cannot be reached, or did not do it.
    """
    from urllib.error import HTTPError, URLError
    from urllib.request import ProxyHandler, Request, build_opener

    import msgspec

    from rheostat.errors import RheostatError

    if settings.secret is None:
        raise RheostatError("the config has no `admin.secret`, so its gateway has no admin port")
    request = Request(url, method=method, headers={"authorization": f"Bearer {settings.secret}"})
    try:
        with build_opener(ProxyHandler({})).open(request, timeout=TIMEOUT_S) as answer:
            return msgspec.json.decode(answer.read())
    except HTTPError as error:
        raise RheostatError(_told(error.code, error.read())) from None
    except (URLError, TimeoutError, ConnectionError) as error:
        why = error.reason if isinstance(error, URLError) else error
        raise RheostatError(f"no gateway answers at {url.partition('/admin')[0]}: {why}; is it running?") from None


def _told(status: int, body: bytes) -> str:
    import msgspec

    try:
        error = msgspec.json.decode(body)["error"]
        said = error["message"] if isinstance(error, dict) else str(error)
    except (msgspec.DecodeError, KeyError, TypeError):
        said = f"status {status}"
    return f"{said} (is the secret of this config the gateway's?)" if status == 401 else said


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
