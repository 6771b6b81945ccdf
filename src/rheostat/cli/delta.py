"""`rheostat delta`: the difference between two sets of weights, as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rheostat.cli.console import say, say_json, told

Out = Annotated[str, typer.Option("--out", "-o", help="Where the file goes.")]
Force = Annotated[bool, typer.Option("--force", help="Write over the file that is there.")]

app = typer.Typer(help="Take the difference between two sets of weights, and put it back.", no_args_is_help=True)


@app.callback()
def _delta() -> None:
    """Take the difference between two sets of weights, and put it back. A torch model takes it directly as `delta`."""


@app.command()
@told
def make(
    old: Annotated[str, typer.Argument(help="Weights: .safetensors, or STORE/models/NAME.json.", metavar="OLD")],
    new: Annotated[str, typer.Argument(help="The weights they should become.", metavar="NEW")],
    out: Out,
    force: Force = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write the tensors that differ, with the hashes of both sides.

    Example: `rheostat delta make v1.safetensors v2.safetensors -o v1-to-v2.safetensors`
    """
    from rheostat.weights import make_delta

    _free(out, force)
    made = make_delta(old, new, out)
    if as_json:
        say_json({"out": out, **made._asdict()})
        return
    share = made.changed_bytes / made.bytes if made.bytes else 0.0
    say(f"wrote {out}: {made.changed} of {made.tensors} tensors differ, {share:.1%} of {made.bytes / 2**20:,.1f} MiB")
    if share > 0.5:
        say("most of the weights differ: a delta saves little here")


@app.command()
@told
def apply(
    old: Annotated[str, typer.Argument(help="The weights the delta was made from.", metavar="OLD")],
    delta: Annotated[str, typer.Argument(help="A file of `delta make`.", metavar="DELTA")],
    out: Out,
    force: Force = False,
) -> None:
    """Write the new weights whole; every byte is held against its hash, and a delta of other weights is refused.

    Example: `rheostat delta apply v1.safetensors v1-to-v2.safetensors -o v2.safetensors`
    """
    from rheostat.weights import apply_delta

    _free(out, force)
    apply_delta(old, delta, out)
    say(f"wrote {out}")


def _free(out: str, force: bool) -> None:
    if Path(out).exists() and not force:
        raise typer.BadParameter(f"{out} is there already; name another --out, or add --force")
