"""`rheostat train weights`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rheostat.cli.console import note, say, say_json, say_table, told
from rheostat.cli.limits import STAGES_HELP, goal_of, stages_of
from rheostat.cli.table_warnings import warn

if TYPE_CHECKING:
    from rheostat.lab.weights.learn import LearnedWeights
    from rheostat.policies import Delegate

_NAME = "weights"


@told
def weights(
    outcomes: Annotated[str, typer.Argument(help="The outcomes table (from evaluate).", metavar="OUTCOMES")],
    stages: Annotated[str | None, typer.Option(help=STAGES_HELP)] = None,
    feature: Annotated[
        list[str] | None, typer.Option(help="A number of the request: a text feature, meta.FIELD or meta.FIELD=VALUE.")
    ] = None,
    answers: Annotated[
        str, typer.Option(help="Whose answers the weights read: all, first (the other call can be saved) or none.")
    ] = "all",
    past: Annotated[
        list[str] | None, typer.Option(help="A meta field (meta.user) by which the models' earlier losses are remembered.")
    ] = None,
    when: Annotated[str, typer.Option(help="The meta field that orders rows in time; default: the table's order.")] = "",
    cluster: Annotated[str, typer.Option(help="The meta field whose rows are not independent (meta.user).")] = "",
    goal: Annotated[
        list[str] | None, typer.Option(help="Limits for the two cuts of two models, as in tune: max-share=0.4, ...")
    ] = None,
    fit_on: Annotated[
        str, typer.Option(help="The split to fit on; its answers must not be of models trained on it.")
    ] = "dev",
    choose_on: Annotated[
        str, typer.Option(help="The split that stops the training and chooses the cuts; the same as --fit-on: halved.")
    ] = "dev",
    report_on: Annotated[str, typer.Option(help="The split to report on.")] = "test",
    calibrate: Annotated[bool, typer.Option(help="Calibrate models that are not, where it helps.")] = True,
    seed: Annotated[int, typer.Option(help="Of the training.")] = 0,
    out: Annotated[str, typer.Option(help="Where the weights go.")] = "weights.onnx",
    force: Annotated[bool, typer.Option("--force", help="Write over the files that are there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Learn how much each model's answer counts, per request, from which labels were right.

    Trained through the mix of scores (needs the extra `torch`; serving does not), held against the best single model, a
    fixed blend, weights by margin and a stack on fresh rows, and written with the lines to paste into a config.

    Example: `rheostat train weights outcomes.parquet --feature length --out weights.onnx`
    """
    from rheostat.lab.outcomes_file import load
    from rheostat.lab.weights.learn import Ask, learn_weights
    from rheostat.lab.weights.predictor import Recipe

    target = Path(out)
    _free([target], force)
    table = load(outcomes)
    models = stages_of(table, stages, None, None)
    warn(table, table, models, thresholds=False)
    if goal and (len(models) != 2 or answers == "all"):
        raise typer.BadParameter("--goal sets two cuts: it needs two --stages, and --answers first or none")
    ask = Ask(
        models=models, features=tuple(feature or ()), answers=answers, past=tuple(past or ()), when=when, cluster=cluster,
        fit=fit_on, stop=choose_on, report=report_on, calibrate=calibrate, recipe=Recipe(seed=seed),
    )  # fmt: skip
    try:
        found = learn_weights(table, ask, note)
        cuts = _cuts(found, goal) if goal else None
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    files = _files(found, target)
    _free(list(files.values()), force)
    _write(found, target, files)
    if as_json:
        say_json(_as_data(found, target, files, cuts))
    else:
        _tell(found, target, files, cuts)


def _free(paths: list[Path], force: bool) -> None:
    for path in paths:
        if path.exists() and not force:
            raise typer.BadParameter(f"{path} is there already; --force writes over it, --out names another file")


def _cuts(found: LearnedWeights, goal: list[str]) -> Delegate:
    from rheostat.lab.weights.cuts import choose_cuts

    weak, strong = found.ask.models
    weight = found.net.weights(found.data[1].x)[:, 1]
    return choose_cuts(found.stopped, weak, strong, weight, f"{_NAME}.{strong}", goal_of(goal))


def _files(found: LearnedWeights, target: Path) -> dict[str, Path]:
    """Where each model's new calibrator goes: beside the weights."""
    return {name: target.with_name(f"{target.stem}.{name}.json") for name in found.calibrators}


def _write(found: LearnedWeights, target: Path, files: dict[str, Path]) -> None:
    from rheostat.signals.calibrator import save_calibrator

    found.write(target)
    for name, path in files.items():
        save_calibrator(found.calibrators[name], str(path))


def _lines(found: LearnedWeights, target: Path, files: dict[str, Path], cuts: Delegate | None) -> list[str]:
    """What goes into a config: calibrators, the signal, the policy."""
    from rheostat.lab.policy_file import policy_form

    models = found.ask.models
    lines = ["models:", *(f"  {name}: {{..., calibration: {path}}}" for name, path in files.items())] if files else []
    lines += ["signals:", f"  {_NAME}: {{scorer: answers, path: {target}, outputs: [{', '.join(models)}]}}"]
    if cuts is not None:
        return [*lines, "routes:", f"  default: {{policy: {policy_form(cuts)}}}"]
    each = ", ".join(f"{name}: 1" for name in models)
    return [*lines, "routes:", f"  default: {{policy: {{blend: {{weights: {{{each}}}, signal: {_NAME}}}}}}}"]


def _tell(found: LearnedWeights, target: Path, files: dict[str, Path], cuts: Delegate | None) -> None:
    report, rows = found.report, len(found.judged)
    say(f"{rows:,} rows of {found.ask.report}; lower log loss is better, the gain is that of the learned weights:")
    say()
    cells = []
    for name, figure in report.figures.items():
        gain = report.gains.get(name)
        shown = "" if gain is None else f"{gain.mean:+.4f} [{gain.low:+.4f}, {gain.high:+.4f}]"
        cells.append([name, f"{figure.loss:.4f}", f"{figure.accuracy:.2%}", shown])
    say_table(["", "log loss", "accuracy", "gain [95 %]"], cells)
    say()
    say(f"the largest weight is {found.top:.2f} on average, and 0.98 or more on {found.alone:.1%} of the rows")
    for line in found.notes:
        note(f"note: {line}")
    if found.pays:
        say("verdict: weights per request pay; they beat every plain way on fresh rows")
    else:
        rivals = ", ".join(name for name, gain in report.gains.items() if not gain.better)
        say(f"verdict: weights per request do not pay; not clearly better than {rivals}")
        blend = ", ".join(f"{name}: {weight:.3f}" for name, weight in zip(found.ask.models, report.blend, strict=True))
        say(f"the fixed blend needs no file: {{blend: {{weights: {{{blend}}}}}}}")
    say()
    say(f"wrote {', '.join(map(str, (target, *files.values())))}; in the config:")
    for line in _lines(found, target, files, cuts):
        say(f"  {line}")


def _as_data(found: LearnedWeights, target: Path, files: dict[str, Path], cuts: Delegate | None) -> dict[str, Any]:
    return {
        "file": str(target), "calibrators": {name: str(path) for name, path in files.items()}, "models": found.ask.models,
        "features": found.net.features, "rows": {"fit": found.rows, "report": len(found.judged)}, "pays": found.pays,
        "report": found.report, "largest_weight": found.top, "alone": found.alone, "notes": found.notes,
        "config": _lines(found, target, files, cuts),
    }  # fmt: skip
