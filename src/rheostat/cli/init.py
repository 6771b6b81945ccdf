"""`rheostat init`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from rheostat.cli.console import note, say, told


@told
def init(
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="A model as NAME=WHERE, cheapest first; may be repeated. WHERE is a .onnx file, a scikit-learn .joblib or "
            ".pkl, module:function, or a URL (with /v1 in it: OpenAI-compatible, #MODEL names the model there)."
        ),
    ] = None,
    csv: Annotated[
        str | None, typer.Option(help="A labelled file (.csv, .jsonl, .parquet): its labels and features.")
    ] = None,
    text_column: Annotated[str | None, typer.Option(help="Its column with the text (default: `text`, if any).")] = None,
    label_column: Annotated[str, typer.Option(help="Its column with the label.")] = "label",
    trust: Annotated[bool, typer.Option("--trust", help="You made the pickles yourself: write down their hashes.")] = False,
    policy_file: Annotated[str | None, typer.Option(help="A tuned policy to use (from tune).")] = None,
    out: Annotated[str, typer.Option(help="The config to write.")] = "rheostat.yaml",
    force: Annotated[bool, typer.Option("--force", help="Write over a config that is there.")] = False,
) -> None:
    """Write a commented config for your models.

    Example: `rheostat init --model fast=fast.onnx --model large=large.joblib --trust --csv data.csv`
    """
    from rheostat.cli.new_config import Columns, columns_of, entry, named_models, render
    from rheostat.config import load_config

    target = Path(out)
    if not model:
        raise typer.BadParameter("name your models, cheapest first: --model fast=fast.onnx --model large=large.joblib")
    if target.exists() and not force:
        raise typer.BadParameter(f"{out} is there already; --force writes over it, --out names another file")
    columns = columns_of(csv, text_column, label_column) if csv else Columns()
    entries = [
        entry(name, where, order, target.parent, columns, trust)
        for order, (name, where) in enumerate(named_models(model).items())
    ]
    policy = os.path.relpath(Path(policy_file).absolute(), target.parent.absolute()) if policy_file else None
    before = target.read_bytes() if target.exists() else None
    target.write_text(render(entries, columns, policy), encoding="utf-8")
    try:
        load_config(out)
    except Exception:
        if before is None:
            target.unlink()
        else:
            target.write_bytes(before)
        raise
    say(f"wrote {out}")
    unvouched = [each.unvouched for each in entries if each.unvouched]
    if unvouched:
        note(
            f"{', '.join(unvouched)}: a pickle runs code when it is loaded. If you made it yourself, "
            "say so: the same command with --trust --force"
        )
    say(f"next: rheostat check {out} --load")
