"""`rheostat train quality`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from rheostat.cli.console import FAILED, note, progress, say, say_json, say_table, told
from rheostat.cli.limits import STAGES_HELP, stages_of
from rheostat.cli.train_rows import embedder, features_of, rows_of

if TYPE_CHECKING:
    from rheostat.lab.bootstrap import Difference
    from rheostat.lab.many import Chosen, Judged, ManyData
    from rheostat.lab.outcomes import OutcomesTable

_GOAL = "quality (the best), match (least cost at the best single model's quality) or budget=COST (a request, on average)."


class _Found(NamedTuple):
    data: ManyData
    judged: dict[str, Judged]
    guarded: Difference
    chosen: Chosen
    zero: float


@told
def quality(
    outcomes: Annotated[str, typer.Argument(help="The outcomes table (from evaluate).", metavar="OUTCOMES")],
    method: Annotated[
        str, typer.Option(help="forest, kernel, ridge, knn, ridge+knn, clusters or means (of --group).")
    ] = "forest",
    models: Annotated[str | None, typer.Option(help=STAGES_HELP)] = None,
    features: Annotated[
        str | None,
        typer.Option(help="Text features, meta.FIELD or data.FIELD, with commas between (default: 16 of the text)."),
    ] = None,
    group: Annotated[str | None, typer.Option(help="A field whose values count each: meta.task.")] = None,
    encoder: Annotated[
        str | None, typer.Option(help="A folder with encoder.onnx and tokenizer.json: the text's embedding counts too.")
    ] = None,
    goal: Annotated[str, typer.Option(help=_GOAL)] = "quality",
    on: Annotated[str, typer.Option(help="The splits to learn from; test is kept to confirm.")] = "train,dev",
    out: Annotated[str, typer.Option(help="Where the predictor goes.")] = "quality.onnx",
    force: Annotated[
        bool, typer.Option("--force", help="Write over the file; write it even when one model is best.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Learn how good each of any number of models is on a request, and choose by quality and cost.

    Every figure is out of fold, duplicates together. When routing is not sure to stay within .2 points of the best single
    model, the answer is that model alone, and no file is written (exit code 1).

    Example: `rheostat train quality outcomes.parquet --goal match --out quality.onnx`
    """
    from rheostat.lab.many import METHODS
    from rheostat.lab.outcomes_file import load

    if method not in METHODS:
        raise typer.BadParameter(f"--method is one of {', '.join(METHODS)}, got {method!r}")
    aim, budget = _goal(goal)
    if Path(out).exists() and not force:
        raise typer.BadParameter(f"{out} is there already; --force writes over it, --out names another file")
    table = load(outcomes)
    try:
        data, fresh = _rows(table, on, stages_of(table, models), features, group, encoder)
        found = _learn(data, method, aim, budget)
        lines, served = _finish(found, method, fresh, out, on, encoder, force)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if as_json:
        say_json(_as_data(found, served))
    else:
        _tell(found, lines)
    if not found.chosen.routes and not force:
        raise typer.Exit(FAILED)


def _goal(goal: str) -> tuple[Literal["quality", "match", "budget"], float | None]:
    if goal == "quality":
        return "quality", None
    if goal == "match":
        return "match", None
    name, _, value = goal.partition("=")
    try:
        budget = float(value)
    except ValueError:
        budget = math.nan
    if name != "budget" or not math.isfinite(budget) or budget < 0.0:
        raise typer.BadParameter(f"--goal is quality, match or budget=COST with a cost of 0 or more, got {goal!r}")
    return "budget", budget


def _rows(
    table: OutcomesTable, on: str, names: tuple[str, ...], features: str | None, group: str | None, encoder: str | None
) -> tuple[ManyData, ManyData | None]:
    """The rows to learn from, and those of test, if test is not among them."""
    from rheostat.lab.many import many_from_table

    chosen, rest = rows_of(table, on, names)
    embed = embedder(encoder)
    with progress("reading rows") as update:
        data = many_from_table(chosen, names, features=features_of(features), group=group, embed=embed, tell=update)
    for reason, count in data.left_out.items():
        note(f"left out: {count} rows, {reason}")
    return data, None if rest is None else many_from_table(rest, names, features=data.features, embed=embed)


def _learn(data: ManyData, method: str, aim: Literal["quality", "match", "budget"], budget: float | None) -> _Found:
    from rheostat.lab.many import METHODS, choose, guarded, judge, out_of_fold, quality_gap, sweep
    from rheostat.lab.metrics import zero_router_aiq

    unseen = out_of_fold(data, METHODS[method], tell=note)
    routers = {method: sweep(data, unseen.predicted)}
    if data.grouped and method != "means":
        routers["means"] = sweep(data, out_of_fold(data, METHODS["means"], tell=note).predicted)
    chosen = choose(data, unseen.predicted, aim, budget=budget)
    note("intervals ...")
    picks, _ = guarded(data, unseen, aim, budget)
    same_price = max(cost for cost, _ in data.singles) <= min(cost for cost, _ in data.singles)
    judged = {} if same_price else judge(data, routers)
    zero = math.nan if same_price else zero_router_aiq(data.singles)
    return _Found(data, judged, quality_gap(data, picks), chosen, zero)


def _finish(
    found: _Found, method: str, fresh: ManyData | None, out: str, on: str, encoder: str | None, force: bool
) -> tuple[list[str], dict[str, Any]]:
    """Fit on all rows, look at the test rows once, write the file; return the lines to show and what was served."""
    from rheostat.lab.many import METHODS, fitted, quality_lines, save_quality

    data, chosen = found.data, found.chosen
    if not chosen.routes and not force:
        return quality_lines(out, data, chosen), {"file": None}
    note(f"{method}: fitted on all {len(data)} rows ...")
    predictor, setting = fitted(data, METHODS[method])
    lines, confirmed = _confirm(found, predictor.predict(fresh.x), fresh) if fresh is not None else ([], None)
    save_quality(predictor, data, out, fitted_on=on, notes=(f"{method} {dict(setting)}",))
    lines += [f"wrote {out}; in the config:", *(f"  {line}" for line in quality_lines(out, data, chosen, encoder))]
    return lines, {"file": out, "setting": dict(setting), "test": confirmed}


def _confirm(found: _Found, predicted: Any, fresh: ManyData) -> tuple[list[str], dict[str, Any]]:
    import numpy as np

    from rheostat.lab.many import pick, quality_gap

    chosen, at = found.chosen, np.arange(len(fresh))
    best = found.data.models.index(chosen.best)
    prices = found.data.cost.mean(axis=0)
    picks = pick(predicted, prices, chosen.trade, best, chosen.margin) if chosen.routes else np.full(len(fresh), best)
    gap = quality_gap(fresh, picks, best)
    right, cost = float(fresh.quality[at, picks].mean()), float(fresh.cost[at, picks].mean())
    line = f"on {len(fresh)} test rows: quality {right:.2%} at cost {cost:.4g}; less {chosen.best} {_gap(gap)}, which costs "
    return [line + f"{fresh.cost[:, best].mean():.4g}"], {"quality": right, "cost": cost, "gap": gap}


def _tell(found: _Found, lines: list[str]) -> None:
    data, chosen = found.data, found.chosen
    say(f"{len(data)} rows, out of fold; a table row a model, then the routers:")
    say()
    cells = [
        [name, f"{right:.2%}", f"{cost:.4g}", "", ""] for name, (cost, right) in zip(data.models, data.singles, strict=True)
    ]
    for name, one in found.judged.items():
        match = "never" if math.isnan(one.match) else f"{one.match:.1%} of {data.models[data.best]}"
        cells.append([f"{name}, trade 0", f"{one.first.mean:.2%}", "", f"{one.aiq.mean:.4f}", match])
    say_table(["", "quality", "cost", "AIQ", "cost to match the best model"], cells)
    say()
    if not math.isnan(found.zero):
        say(f"mixing models by chance reaches an AIQ of {found.zero:.4f} (the zero router)")
    say(f"guarded, chosen on other folds: quality less the best single model's {_gap(found.guarded)}")
    if chosen.routes:
        say(f"verdict: route; {chosen.why}")
    else:
        say(f"verdict: {chosen.best} alone; {chosen.why}")
    for line in lines:
        say(line)


def _as_data(found: _Found, served: dict[str, Any]) -> dict[str, Any]:
    return {
        "routes": found.chosen.routes, "rows": len(found.data), "models": found.data.models, "singles": found.data.singles,
        "out_of_fold": found.judged, "zero_router_aiq": None if math.isnan(found.zero) else found.zero,
        "guarded_gap": found.guarded, "chosen": found.chosen, "policy": found.chosen.policy(found.data.models, "quality"),
        **served,
    }  # fmt: skip


def _gap(gap: Difference) -> str:
    return f"{100 * gap.mean:+.2f} [{100 * gap.low:+.2f}, {100 * gap.high:+.2f}] points"
