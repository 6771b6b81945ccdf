"""`rheostat evaluate`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rheostat.cli.console import PARTIAL, WRONG_USE, note, progress, say, say_json, say_table, told

if TYPE_CHECKING:
    from rheostat.jobs import BadLine, Evaluation, Part, Survey

_SHOWN = 5


@told
def evaluate(
    config: Annotated[str, typer.Argument(help="The config that names the models.", metavar="CONFIG")],
    data: Annotated[
        list[str] | None,
        typer.Argument(help="Labelled rows: .csv, .tsv, .jsonl (also .gz) or .parquet.", metavar="[DATA]..."),
    ] = None,
    out: Annotated[str, typer.Option(help="Where the outcomes table goes (Parquet).")] = "outcomes.parquet",
    split: Annotated[
        list[str] | None, typer.Option(help="A file whose rows are all of one split: train=a.csv, dev=b.csv, test=c.csv.")
    ] = None,
    text_column: Annotated[
        str | None, typer.Option(help="The column with the text (default: `text`, if there is one).")
    ] = None,
    image_column: Annotated[
        str | None, typer.Option(help="The column with the name of an image file, in the folder of DATA or below it.")
    ] = None,
    label_column: Annotated[str, typer.Option(help="The column with the right label.")] = "label",
    split_column: Annotated[
        str | None, typer.Option(help="The column that says train, dev or test (default: `split`, if there is one).")
    ] = None,
    id_column: Annotated[
        str | None, typer.Option(help="The column with a unique id (default: `id`, if there is one).")
    ] = None,
    meta_column: Annotated[
        list[str] | None, typer.Option(help="A column that rules read as meta.NAME; may be repeated.")
    ] = None,
    models: Annotated[str | None, typer.Option(help="Only these models, with commas between: fast,large.")] = None,
    limit: Annotated[int, typer.Option(help="Take only the first so many usable rows (0: all).", min=0)] = 0,
    seed: Annotated[int, typer.Option(help="Of the automatic split.")] = 0,
    batch: Annotated[int, typer.Option(help="Rows in one call of a local model; 1 times every row.", min=1)] = 8,
    concurrency: Annotated[int, typer.Option(help="Calls at a time of a remote model.", min=1)] = 8,
    keep_inputs: Annotated[
        bool, typer.Option(help="Store inputs in the table; policies that read the text need them.")
    ] = True,
    stop_on_bad: Annotated[
        bool, typer.Option("--stop-on-bad", help="Stop at the first bad line, before any model is asked.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Write over a table made of other data or models.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Ask every model about every row of a labelled set, once, and keep what it said: the outcomes table.

    Rows without a split of their own are split 70/10/20 by their text; equal texts stay together. Rows are kept as they
    are done: after a kill the same command goes on with the rest. Blank lines are skipped and counted; every other line
    that cannot be used is listed, with number and reason, in OUT.bad.jsonl.

    Exit code 0: all done; 3: done, but some lines or rows could not be; 1: it could not be done.

    Example: `rheostat evaluate rheostat.yaml data.csv --label-column topic --out outcomes.parquet`
    """
    from rheostat.config import load_config
    from rheostat.jobs import Columns, LabelledSet, Work
    from rheostat.jobs import evaluate as run

    parts = _parts(data or [], split or [])
    columns = Columns(
        text=text_column, label=label_column, id=id_column, split=split_column, meta=tuple(meta_column or ()),
        image=image_column,
    )  # fmt: skip
    rows = LabelledSet(parts, columns, seed=seed, limit=limit)
    loaded = load_config(config)
    survey = rows.survey(stop_at_first=stop_on_bad)
    if not as_json:
        _announce(survey)
    work = Work(batch=batch, concurrency=concurrency, keep_inputs=keep_inputs, replace=force)
    target = Path(out)
    names = [name.strip() for name in models.split(",") if name.strip()] if models else []
    with progress("evaluating") as update:
        try:
            done = asyncio.run(
                run(loaded, rows, target, models=names, survey=survey, work=work, progress=update)
            )  # fmt: skip
        except KeyboardInterrupt:
            note(f"stopped; what is done is kept in {target.name}.part: the same command goes on with the rest")
            raise typer.Exit(130) from None
    listed = _list_bad(target, survey.bad)
    if as_json:
        say_json(_as_data(done, listed))
    else:
        _tell(done, listed)
    if not done.complete:
        raise typer.Exit(PARTIAL)


def _parts(data: list[str], split: list[str]) -> list[Part]:
    from rheostat.jobs import Part

    parts = [Part(Path(name)) for name in data]
    for each in split:
        name, equals, place = each.partition("=")
        if not equals or not place:
            raise typer.BadParameter(f"--split takes SPLIT=FILE, such as test=test.csv, got {each!r}")
        parts.append(Part(Path(place), name))
    if not parts:
        note("name a file of labelled rows, such as data.csv, or files by split: --split train=a.csv --split test=b.csv")
        raise typer.Exit(WRONG_USE)
    return parts


def _announce(survey: Survey) -> None:
    splits = ", ".join(f"{name} {count}" for name, count in survey.splits.items())
    note(f"{survey.rows} rows with {len(survey.labels)} labels; split {survey.split_by}: {splits}")
    if survey.split_by.startswith("automatically"):
        note("if your models were trained on this file, then only on rows where rheostat.jobs.split_of(text) is 'train'?")
    if survey.blank:
        note(f"{survey.blank} blank lines skipped")
    for bad in survey.bad[:_SHOWN]:
        note(f"bad: {bad.file} line {bad.line}: {bad.reason}")
    if len(survey.bad) > _SHOWN:
        note(f"... and {len(survey.bad) - _SHOWN} more bad lines")


def _list_bad(target: Path, bad: tuple[BadLine, ...]) -> Path | None:
    """Write the bad lines beside the table; a list of an earlier run is removed when there are none."""
    import msgspec

    place = target.with_name(f"{target.name}.bad.jsonl")
    if not bad:
        place.unlink(missing_ok=True)
        return None
    place.write_bytes(msgspec.json.Encoder().encode_lines(bad))
    return place


def _accuracies(done: Evaluation) -> dict[str, dict[str, float | None]]:
    found: dict[str, dict[str, float | None]] = {}
    for name in done.table.models:
        found[name] = {}
        for split in done.survey.splits:
            part = done.table.select(split=split)
            usable = part.complete([name])
            found[name][split] = float(part.correct(name)[usable].mean()) if usable.any() else None
    return found


def _as_data(done: Evaluation, listed: Path | None) -> dict[str, Any]:
    survey = done.survey
    return {
        "out": str(done.out), "rows": survey.rows, "resumed": done.resumed, "cached": done.cached,
        "splits": survey.splits, "split_by": survey.split_by, "labels": survey.labels, "blank_lines": survey.blank,
        "bad_lines": survey.bad, "bad_list": str(listed) if listed else None, "failures": done.failures,
        "accuracy": _accuracies(done), "data_hash": survey.data_hash,
    }  # fmt: skip


def _tell(done: Evaluation, listed: Path | None) -> None:
    import numpy as np

    if done.cached:
        say(f"{done.out} is complete already: the same data, models and settings; nothing was asked")
    else:
        again = f" ({done.resumed} of them before)" if done.resumed else ""
        say(f"{done.out}: {len(done.table)} rows x {len(done.table.models)} models{again}")
    splits = list(done.survey.splits)
    rows = []
    for name, accuracy in _accuracies(done).items():
        columns = done.table.model(name)
        good = columns.latency_s[done.table.answered(name)]
        cells = ["-" if (value := accuracy[split]) is None else f"{value:.2%}" for split in splits]
        middle = f"{np.median(good) * 1000:.3g} ms" if len(good) else "-"
        failed = sum(done.failures.get(name, {}).values())
        rows.append([name, *cells, middle, f"{columns.cost.mean():.4g}", str(failed)])
    say()
    say_table(["model", *splits, "a row takes", "cost", "failed"], rows)
    for name, kinds in done.failures.items():
        note(f"{name} could not answer: {', '.join(f'{kind} {count}' for kind, count in kinds.items())}")
    if listed is not None:
        note(f"{len(done.survey.bad)} bad lines are listed in {listed}")
    say()
    say(f"next: rheostat tune {done.out} --goal max-share=0.2")
