"""`rheostat profile`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rheostat.cli.console import WRONG_USE, note, progress, say, say_json, say_table, told

if TYPE_CHECKING:
    from rheostat.config import Loaded
    from rheostat.jobs import Columns, Example
    from rheostat.pool.profile import Profile


@told
def profile(
    config: Annotated[str, typer.Argument(help="The config that names the models.", metavar="CONFIG")],
    data: Annotated[
        list[str] | None,
        typer.Argument(help="Labelled rows: .csv, .tsv, .jsonl (also .gz) or .parquet.", metavar="[DATA]..."),
    ] = None,
    models: Annotated[str | None, typer.Option(help="Only these models, with commas between: fast,large.")] = None,
    text_column: Annotated[str | None, typer.Option(help="The column with the text (default: `text`).")] = None,
    image_column: Annotated[
        str | None, typer.Option(help="The column with the name of an image file, in the folder of DATA or below it.")
    ] = None,
    label_column: Annotated[str, typer.Option(help="The column with the right label.")] = "label",
    split: Annotated[
        str, typer.Option(help="The rows to take: test, dev, train or all. A model knows the rows it was trained on.")
    ] = "test",
    rows: Annotated[int, typer.Option(help="Ask about so many rows at most.", min=1)] = 500,
    most: Annotated[int, typer.Option(help="The largest load: rows in one call, or calls at a time.", min=1)] = 32,
    records: Annotated[
        str | None, typer.Option(help="Ask nobody: measure from these route records (.sqlite or .jsonl) of live traffic.")
    ] = None,
    out: Annotated[str, typer.Option(help="The folder for the profiles, one file a model.")] = "profiles",
    chart: Annotated[str | None, typer.Option(help="Draw latency against quality into this .svg file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure the models: latency by load and by length, rows a second, memory, time to load, and how often each is right.

    Models are measured one after another, so that they do not slow each other, and a slow one takes a while: --rows times
    its latency, and then the loads. Without DATA each is asked about its `probe`, and no quality is known. Name a profile
    in the config (`profile: profiles/fast.json`) and decisions know latency and quality from the first request on.

    Example: `rheostat profile rheostat.yaml data.csv --label-column topic --chart profiles.svg`
    """
    from rheostat.config import load_config
    from rheostat.jobs import Columns
    from rheostat.pool.profile import save_profile

    if split not in ("test", "dev", "train", "all"):
        raise typer.BadParameter(f"--split is test, dev, train or all, got {split!r}")
    if chart is not None and not chart.endswith(".svg"):
        raise typer.BadParameter(f"--chart draws an .svg file, got {chart!r}")
    if records is not None and data:
        note("give either DATA to ask the models about, or --records of what they were asked: not both")
        raise typer.Exit(WRONG_USE)
    loaded = load_config(config)
    names = [name.strip() for name in models.split(",") if name.strip()] if models else []
    if records is not None:
        found = _from_records(loaded, records, names)
    else:
        examples = _examples(data or [], Columns(text=text_column, label=label_column, image=image_column), split)
        found = _measured(loaded, examples, names, rows, most)
    for each in found:
        save_profile(each, Path(out) / f"{each.model}.json")
    if chart is not None:
        _draw(found, Path(chart))
    if as_json:
        say_json(found)
    else:
        _tell(found, out)


def _measured(loaded: Loaded, examples: Iterator[Example], names: list[str], rows: int, most: int) -> list[Profile]:
    from rheostat.jobs.profile import Effort, profile_models

    with progress("measuring") as update:
        return asyncio.run(
            profile_models(loaded, examples, models=names, effort=Effort(rows=rows, most=most), progress=update)
        )


def _examples(data: list[str], columns: Columns, split: str) -> Iterator[Example]:
    from rheostat.jobs import DataError, Example, LabelledSet, Part

    if not data:
        return
    some = False
    for item in LabelledSet([Part(Path(name)) for name in data], columns):
        if isinstance(item, Example) and split in ("all", item.split):
            some = True
            yield item
    if not some:
        raise DataError(f"no usable row of the {split} split in {', '.join(data)}; --split all takes every row")


def _from_records(loaded: Loaded, records: str, names: list[str]) -> list[Profile]:
    from rheostat.jobs.evaluate import chosen_models
    from rheostat.lab.live_profile import live_profiles
    from rheostat.lab.records import read_feedback, read_routed

    chosen = chosen_models(loaded, names)
    versions = {name: settings.version for name, settings in chosen.items()}
    costs = {name: settings.cost for name, settings in chosen.items()}
    found = live_profiles(read_routed(records), read_feedback(records), versions, costs)
    for name in sorted(set(versions) - {each.model for each in found}):
        note(f"{name} version {versions[name]} has answered nothing in {records}: no profile")
    return found


def _draw(found: list[Profile], path: Path) -> None:
    from base64 import b64decode

    from rheostat.lab.profile_plot import latency_quality

    path.write_bytes(b64decode(latency_quality(found).partition(",")[2]))


def _tell(found: list[Profile], out: str) -> None:
    lines = []
    for each in found:
        best = max(each.loads, key=lambda load: load.rows_per_s, default=None)
        quality = each.quality
        lines.append(
            [
                each.model,
                each.version,
                *(f"{1000 * value:.2f}" for value in (each.alone.p50_s, each.alone.p95_s, each.alone.p99_s)),
                "" if best is None else f"{best.rows_per_s:.0f} at {best.size}",
                "" if each.memory is None else f"{each.memory / 2**20:.0f}",
                "" if each.load_s is None else f"{each.load_s:.2f}",
                "" if quality is None else f"{quality.accuracy:.3f} [{quality.low:.3f}, {quality.high:.3f}]",
            ]
        )
    say_table(
        ["model", "version", "p50 ms", "p95 ms", "p99 ms", "rows/s", "MiB", "load s", "accuracy"],
        lines,
    )
    for each in found:
        if each.failures:
            kinds = ", ".join(f"{kind} {count}" for kind, count in each.failures.items())
            note(f"{each.model} did not answer every row: {kinds}")
        if each.quality is not None and each.quality.chosen:
            told = f"judged on the {each.quality.rows} requests that were routed to it: do not compare models by it"
            note(f"{each.model}: {told}")
    if found:
        say(f"{len(found)} profiles in {out}/: name one in the config as `profile: {out}/{found[0].model}.json`")
