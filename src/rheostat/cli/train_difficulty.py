"""`rheostat train difficulty`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rheostat.cli.console import note, progress, say, told
from rheostat.cli.table_warnings import warn

if TYPE_CHECKING:
    from rheostat.lab.difficulty import Examples, Net
    from rheostat.lab.outcomes import OutcomesTable

_TRIED = 1_000  # texts whose edits are tried


@told
def difficulty(
    outcomes: Annotated[str, typer.Argument(help="The outcomes table (from evaluate).", metavar="OUTCOMES")],
    small: Annotated[str | None, typer.Option(help="The model whose errors are learned (default: the cheapest).")] = None,
    on: Annotated[str, typer.Option(help="The split to fit on; train only if the model has not seen it.")] = "train",
    choose_on: Annotated[str, typer.Option(help="The split to choose settings and cuts on.")] = "dev",
    report_on: Annotated[str, typer.Option(help="The split to report on.")] = "test",
    tiers: Annotated[int, typer.Option(help="How many tiers, 2 to 5.", min=2, max=5)] = 3,
    shares: Annotated[
        str | None, typer.Option(help="Shares of the traffic a tier, easiest first (.5,.3,.2); default: cuts from outcomes.")
    ] = None,
    flips: Annotated[
        float, typer.Option(help="Share of texts that ten one-character edits may move to another tier.", min=0.0, max=1.0)
    ] = 0.05,
    no_labels: Annotated[bool, typer.Option("--no-labels", help="Fit on clusters of texts, not on outcomes.")] = False,
    drop_repeats: Annotated[
        bool, typer.Option("--drop-repeats", help="Leave out rows whose question stands in a later split.")
    ] = False,
    out: Annotated[str, typer.Option(help="Where the net goes.")] = "difficulty.onnx",
    force: Annotated[bool, typer.Option("--force", help="Write over the file that is there.")] = False,
) -> None:
    """Learn from the text alone how likely the small model errs; print tiers that a one-character edit seldom changes.

    Refused: questions that stand in both splits, a feature that is the label, errors on rows the model was trained on.

    Example: `rheostat train difficulty outcomes.parquet --shares .5,.3,.2 --out difficulty.onnx`
    """
    from rheostat.lab.difficulty import read_examples
    from rheostat.lab.outcomes_file import load

    if Path(out).exists() and not force:
        raise typer.BadParameter(f"{out} is there already; --force writes over it, --out names another file")
    if len({on, choose_on, report_on}) < 3:
        raise typer.BadParameter("--on, --choose-on and --report-on must be three different splits")
    table = load(outcomes)
    model = small or table.models[0]
    warn(table, table, (model,) if model in table.models else (), thresholds=False)
    try:
        parts = _shares(shares)
        with progress("reading texts") as update:
            rows = read_examples(table, model, tell=update)
        fit, dev, test = _parts(rows, (on, choose_on, report_on), drop_repeats)
        net = _fit(fit, dev, test, no_labels)
        cuts, held = _cuts(net, dev, tiers, parts, flips)
        _report(net, test, cuts, held, model)
        _save(net, fit, table, out, on, cuts, held, parts, no_labels)
    except KeyError as error:
        raise typer.BadParameter(str(error.args[0])) from None
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _shares(text: str | None) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"--shares takes numbers with commas between, such as .5,.3,.2, got {text!r}") from None


def _parts(rows: Examples, splits: tuple[str, str, str], drop: bool) -> tuple[Examples, Examples, Examples]:
    from rheostat.lab.difficulty import without_repeats

    fit, dev, test = (rows.part(split) for split in splits)
    if drop:
        before = len(fit) + len(dev)
        dev = without_repeats(dev, test)
        fit = without_repeats(without_repeats(fit, dev), test)
        note(f"left out: {before - len(fit) - len(dev)} rows whose question stands in a later split")
    return fit, dev, test


def _fit(fit: Examples, dev: Examples, test: Examples, no_labels: bool) -> Net:
    from rheostat.lab.difficulty import TEXT, Setting, check_leaks, choose, fit_net, pseudo_difficulty
    from rheostat.lab.difficulty.leak import no_repeats

    no_repeats(fit, test)
    no_repeats(dev, test)
    if not no_labels:
        check_leaks(fit, dev)
        note("fitting ...")
        return choose(fit, dev, tell=note)[0]
    from dataclasses import replace

    guess = replace(fit.only(TEXT), error=pseudo_difficulty(fit.only(TEXT)))
    return fit_net(guess, Setting(hidden=16, penalty=10.0))


def _cuts(
    net: Net, dev: Examples, tiers: int, shares: tuple[float, ...] | None, most: float
) -> tuple[tuple[float, ...], float]:
    from rheostat.lab.difficulty import margin_for, outcome_cuts, quantile_cuts

    scores = net.predict(dev.only(net.features).x)
    cuts = quantile_cuts(scores, shares) if shares is not None else outcome_cuts(scores, dev.error, tiers)
    note("trying edits of one character ...")
    return cuts, margin_for(net.predict, net.features, dev.texts[:_TRIED], cuts, most=most)


def _report(net: Net, test: Examples, cuts: tuple[float, ...], held: float, model: str) -> None:
    from rheostat.lab.difficulty import flips, tier_errors
    from rheostat.lab.difficulty.net import auroc

    scores = net.predict(test.only(net.features).x)
    say(f"on {len(test)} rows that nothing was fitted or chosen on, {model} errs on {test.error.mean():.1%}")
    if 0.0 < test.error.mean() < 1.0:
        length = auroc(test.error, test.x[:, test.features.index("length")])
        value = auroc(test.error, scores)
        say(f"AUROC for an error: {value:.3f} (length alone {max(length, 1 - length):.3f}, chance 0.5)")
        if value < 0.55:
            say("The text hardly tells: let a cascade read the small model's confidence instead.")
    for place, found in enumerate(tier_errors(scores, test.error, cuts)):
        said = "no row" if found is None else f"{found.mean:.1%} errors [{found.low:.1%}, {found.high:.1%}], {found.n} rows"
        say(f"tier {place + 1}: {said}")
    moved = flips(net.predict, net.features, test.texts[:_TRIED], cuts, margin=held)
    say(
        f"one changed character: {moved.single:.1%} change the tier, the worst of ten {moved.worst:.1%}; with the "
        f"hysteresis below {moved.held_single:.1%} and {moved.held_worst:.1%}"
    )


def _save(
    net: Net, fit: Examples, table: OutcomesTable, out: str, on: str, cuts: tuple[float, ...], held: float,
    shares: tuple[float, ...] | None, no_labels: bool,
) -> None:  # fmt: skip
    from rheostat.lab.difficulty import save_net, tiers_form

    save_net(net, fit, out, fitted_on=on, notes=("labels from clusters",) if no_labels else ())
    say(f"wrote {out}; in the config:")
    say(f"signals:\n  difficulty: {{scorer: learned, path: {out}}}")
    say(tiers_form("difficulty", cuts, table.models, held))
    if shares is not None:
        from itertools import accumulate

        shown = ", ".join(f"{cut:.4g}" for cut in list(accumulate(shares))[:-1])
        say(f"To keep these shares when the traffic drifts: `quantiles: traffic` in the signal, and cuts: [{shown}] without")
        say("hysteresis, or with one in shares, such as 0.05.")
