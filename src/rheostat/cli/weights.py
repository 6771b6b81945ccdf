"""`rheostat weights`: the store in which equal tensors of a family lie once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from rheostat.cli.console import FAILED, note, say, say_json, say_table, told

Store = Annotated[str, typer.Option("--store", help="The folder of the store; the first `add` makes it.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

app = typer.Typer(help="Keep the weights of a family of models, equal tensors once.", no_args_is_help=True)


@app.callback()
def _weights() -> None:
    """Keep the weights of a family of models, equal tensors once. A config names a model of the store as `weights`, and all
    models and processes that use a tensor share its memory.
    """


@app.command()
@told
def add(
    files: Annotated[list[str], typer.Argument(help="Files of weights (.safetensors).", metavar="FILE...")],
    store: Store = "weights",
    name: Annotated[
        str | None, typer.Option(help="Its name in the store (default: the file's, without .safetensors).")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Let a name that is taken mean the new weights.")] = False,
    as_json: Json = False,
) -> None:
    """Put weights in the store; of tensors that are there already nothing is written again.

    Example: `rheostat weights add base.safetensors tuned.safetensors --store weights`
    """
    from rheostat.weights import WeightStore

    if name is not None and len(files) > 1:
        raise typer.BadParameter("--name names one model, and there is more than one file")
    place = WeightStore(store)
    added = [place.add(file, name or Path(file).stem, replace) for file in files]
    if as_json:
        say_json([{**each._asdict(), "path": str(each.path)} for each in added])
        return
    for each in added:
        known = f"{_size(each.new_bytes)} of {_size(each.bytes)} were new"
        say(f"{each.path.stem}: {each.tensors} tensors, {known}; in a config: weights: {each.path}")


@app.command("list")
@told
def list_models(store: Store = "weights", as_json: Json = False) -> None:
    """Say what is in the store, and how much of it is shared."""
    from rheostat.weights import WeightStore, digest_of

    models = WeightStore(store).models()
    users = Counter(sha256 for each in models.values() for sha256 in {one.sha256 for one in each.tensors.values()})
    lines = []
    for name, each in models.items():
        blobs = {one.sha256: one.size for one in each.tensors.values()}
        shared = sum(size for sha256, size in blobs.items() if users[sha256] > 1)
        lines.append((name, len(each.tensors), each.size, shared, digest_of(each.tensors)))
    whole = sum({one.sha256: one.size for each in models.values() for one in each.tensors.values()}.values())
    if as_json:
        keys = ("name", "tensors", "bytes", "shared_bytes", "digest")
        say_json({"models": [dict(zip(keys, line, strict=True)) for line in lines], "bytes": whole})
        return
    say_table(
        ("model", "tensors", "size", "shared", "hash"),
        [(name, str(count), _size(size), _size(shared), digest[:12]) for name, count, size, shared, digest in lines],
    )
    say(f"{_size(whole)} in all; as separate files {_size(sum(line[2] for line in lines))}")


@app.command()
@told
def remove(
    names: Annotated[list[str], typer.Argument(help="Names in the store.", metavar="NAME...")], store: Store = "weights"
) -> None:
    """Take models out of the store; `gc` then frees what nobody uses any more."""
    from rheostat.weights import WeightStore

    for name in names:
        WeightStore(store).remove(name)
        say(f"{name} is out of {store}")


@app.command()
@told
def gc(store: Store = "weights", as_json: Json = False) -> None:
    """Delete tensors that no model of the store names, and what broken writes left."""
    from rheostat.weights import WeightStore

    freed = WeightStore(store).collect()
    if as_json:
        say_json(freed._asdict())
        return
    say(f"freed {_size(freed.bytes)}: {freed.blobs} tensors that no model names, {freed.leftovers} leftovers of writes")


@app.command()
@told
def verify(store: Store = "weights", as_json: Json = False) -> None:
    """Read every tensor and hold it against its hash; exit code 1 when one is damaged."""
    from rheostat.weights import WeightStore

    place = WeightStore(store)
    problems = place.verify()
    if as_json:
        say_json({"problems": problems})
    for problem in () if as_json else problems:
        note(problem)
    if problems:
        note("add the model again from its file, which mends the store")
        raise typer.Exit(FAILED)
    if not as_json:
        say(f"all tensors of {len(place.models())} models are as they were added")


def _size(count: int) -> str:
    if count < 1024:
        return f"{count} bytes"
    return f"{count / 2**20:,.1f} MiB" if count >= 2**20 else f"{count / 1024:,.1f} KiB"
