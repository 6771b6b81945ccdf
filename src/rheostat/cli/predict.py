"""`rheostat predict`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rheostat.cli.console import say, say_json, told

if TYPE_CHECKING:
    from rheostat.engine.engine import Served


@told
def predict(
    config: Annotated[str, typer.Argument(help="The config file.", metavar="CONFIG")],
    text: Annotated[str, typer.Argument(help="What to decide; `-` reads it from standard input.", metavar="TEXT")],
    route: Annotated[str, typer.Option(help="Which route.")] = "default",
    meta: Annotated[list[str] | None, typer.Option(help="A field of meta, as NAME=VALUE; may be repeated.")] = None,
    session: Annotated[str | None, typer.Option(help="The session, for policies that stick to one.")] = None,
    force_model: Annotated[str | None, typer.Option(help="Ask this model and no other.")] = None,
    features: Annotated[bool, typer.Option("--features", help="TEXT is JSON: an object of features, or a list.")] = False,
    image: Annotated[bool, typer.Option("--image", help="TEXT is the name of an image file.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record as JSON.")] = False,
) -> None:
    """Decide one request as the gateway would, and tell how.

    Exit code 0: answered; 1: nobody could answer, or the request was wrong.

    Example: `rheostat predict rheostat.yaml "Where is my parcel?" --meta channel=mail`
    """
    data = _image(text) if image else _given(text, features)
    options = {"route": route, "meta": _meta(meta or []), "session": session, "force_model": force_model}
    served = asyncio.run(_serve(config, data, options))
    if as_json:
        say_json(served.record)
    else:
        from rheostat.telemetry.telling import tell

        for line in tell(served.record):
            say(line)
    if served.error is not None:
        raise typer.Exit(1)


def _given(text: str, features: bool) -> Any:
    given = sys.stdin.read() if text == "-" else text
    return _parsed(given) if features else given.removesuffix("\n")


def _image(name: str) -> dict[str, str]:
    from rheostat.jobs.image_file import read_image

    try:
        return read_image(Path(name))
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"--image: {name} cannot be read: {getattr(error, 'strerror', None) or error}") from None


async def _serve(config: str, data: Any, options: dict[str, Any]) -> Served:
    from rheostat.router import Router

    router = await Router.open(config)
    try:
        return await router.serve(router.request(data, **options))
    finally:
        await router.aclose()


def _meta(pairs: list[str]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"--meta takes NAME=VALUE, got {pair!r}")
        found[name] = value
    return found


def _parsed(text: str) -> Any:
    import msgspec

    try:
        data = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise typer.BadParameter(f"with --features TEXT must be JSON: {error}") from None
    if not isinstance(data, dict | list):
        raise typer.BadParameter('with --features TEXT must be an object such as {"width": 1.5}, or a list of numbers')
    return data
