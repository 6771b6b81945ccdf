"""`rheostat train router`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from rheostat.cli.console import FAILED, note, progress, say, say_json, say_table, told
from rheostat.cli.limits import goal_of, stages_of
from rheostat.cli.train_rows import embedder, features_of, rows_of

if TYPE_CHECKING:
    from rheostat.lab.outcomes import OutcomesTable
    from rheostat.lab.routers import Judged, OutOfFold, RoutingData
    from rheostat.lab.routers.judge import Cut

_GOAL = (
    "Where the threshold stands: max-share=0.5 (calls of the strong model) or min-relative-quality=0.95 (of its quality)."
)
_FEW = 0.005  # a smaller loss of APGR is not shown


class _Found(NamedTuple):
    data: RoutingData
    made: OutOfFold
    judged: Judged
    rivals: dict[str, Any]
    lost: dict[str, float]
    cut: Cut


@told
def router(
    outcomes: Annotated[str, typer.Argument(help="The outcomes table (from evaluate).", metavar="OUTCOMES")],
    learner: Annotated[
        str, typer.Option(help="mean, forest, boosted, kernel, ridge, knn, ridge+knn, logistic, tree, factors or group.")
    ] = "mean",
    weak: Annotated[str | None, typer.Option(help="The cheap model (with --strong; default: the cheapest).")] = None,
    strong: Annotated[str | None, typer.Option(help="The dear model (with --weak; default: the dearest).")] = None,
    features: Annotated[
        str | None,
        typer.Option(help="Text features, meta.FIELD or data.FIELD, with commas between (default: 16 of the text)."),
    ] = None,
    group: Annotated[str | None, typer.Option(help="A field whose values count each: meta.task.")] = None,
    encoder: Annotated[
        str | None, typer.Option(help="A folder with encoder.onnx and tokenizer.json: the text's embedding counts too.")
    ] = None,
    goal: Annotated[str, typer.Option(help=_GOAL)] = "min-relative-quality=0.95",
    on: Annotated[str, typer.Option(help="The splits to learn from; test is kept to confirm.")] = "train,dev",
    out: Annotated[str, typer.Option(help="Where the router goes.")] = "router.onnx",
    force: Annotated[bool, typer.Option("--force", help="Write over the file; write it even without a signal.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Learn from outcomes which requests need the strong model; say honestly whether it can be told at all.

    Every figure is out of fold, duplicates together, with settings chosen inside each fold. Without a signal no file is
    written (exit code 1): use the same share blindly, or a cascade, which sees the weak model's answer.

    Example: `rheostat train router outcomes.parquet --learner forest --out router.onnx`
    """
    from rheostat.lab.outcomes_file import load
    from rheostat.lab.routers import LEARNERS

    if learner not in LEARNERS:
        raise typer.BadParameter(f"--learner is one of {', '.join(LEARNERS)}, got {learner!r}")
    if Path(out).exists() and not force:
        raise typer.BadParameter(f"{out} is there already; --force writes over it, --out names another file")
    table = load(outcomes)
    names = stages_of(table, None, weak, strong)
    try:
        data, fresh = _rows(table, on, (names[0], names[-1]), features, group, encoder)
        found = _learn(data, learner, goal)
        shown, served = _finish(found, learner, fresh, out, on, encoder, force)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if as_json:
        say_json(_as_data(found, served))
    else:
        _tell(found, shown, learner)
    if not found.judged.signal and not force:
        raise typer.Exit(FAILED)


def _rows(
    table: OutcomesTable, on: str, pair: tuple[str, str], features: str | None, group: str | None, encoder: str | None
) -> tuple[RoutingData, RoutingData | None]:
    """The rows to learn from, and those of test, if test is not among them."""
    from rheostat.lab.routers import from_table

    if pair[0] == pair[1]:
        raise ValueError(f"two models are needed, the table has only {pair[0]}")
    chosen, rest = rows_of(table, on, pair)
    embed = embedder(encoder)
    with progress("reading rows") as update:
        data = from_table(chosen, *pair, features=features_of(features), group=group, embed=embed, tell=update)
    for reason, count in data.left_out.items():
        note(f"left out: {count} rows, {reason}")
    return data, None if rest is None else from_table(rest, *pair, features=data.features, embed=embed)


def _learn(data: RoutingData, learner: str, goal: str) -> _Found:
    import numpy as np

    from rheostat.lab.routers import (
        LEARNERS,
        against,
        importance,
        judge,
        out_of_fold,
        threshold_for_quality,
        threshold_for_share,
    )  # fmt: skip

    wanted = goal_of([goal])
    if wanted.max_share is None and wanted.min_relative_quality is None:
        raise ValueError("--goal takes max-share=... or min-relative-quality=...")
    made = out_of_fold(data, LEARNERS[learner], tell=note)
    rivals = {}
    if "length" in data.features:
        rivals["longest first"] = data.x[:, data.features.index("length")].astype(np.float64)
    if data.plain < len(data.features) and learner != "group":
        rivals["group mean"] = out_of_fold(data, LEARNERS["group"], tell=note).score
    note("intervals and importance ...")
    compared = {name: (judge(data, score), against(data, made.score, score)) for name, score in rivals.items()}
    if wanted.max_share is not None:
        cut = threshold_for_share(data, made.score, wanted.max_share)
    else:
        cut = threshold_for_quality(data, made.score, wanted.min_relative_quality or 1.0, wanted.sure)
    return _Found(data, made, judge(data, made.score), compared, importance(data, made), cut)


def _finish(
    found: _Found, learner: str, fresh: RoutingData | None, out: str, on: str, encoder: str | None, force: bool
) -> tuple[list[str], dict[str, Any]]:
    """Fit on all rows, look at the test rows once, write the file; return the lines to show and what was served."""
    import numpy as np

    from rheostat.lab.routers import LEARNERS, config_lines, fitted, judge, save_router
    from rheostat.lab.routers.trees import Rules

    if not found.judged.signal and not force:
        return [], {"file": None}
    note(f"{learner}: fitted on all {len(found.data)} rows ...")
    final, setting = fitted(found.data, LEARNERS[learner])
    lines: list[str] = []
    confirmed = None
    if fresh is not None and fresh.strong.mean() > fresh.weak.mean():
        score = final.predict(fresh.x)
        confirmed = judge(fresh, score)
        sent = score >= found.cut.threshold
        quality = float(np.where(sent, fresh.strong, fresh.weak).mean())
        lines.append(
            f"on {len(fresh)} test rows: APGR {_interval(confirmed)}; at the threshold {sent.mean():.1%} strong calls, "
            f"quality {quality:.2%}"
        )
    if isinstance(final, Rules):
        lines += ["rules:", *(f"  {line}" for line in final.lines())]
    save_router(final, LEARNERS[learner], found.data, out, fitted_on=on, notes=(f"{learner} {dict(setting)}",))
    lines += [
        f"wrote {out}; in the config:",
        *(f"  {line}" for line in config_lines(out, found.data, found.cut.threshold, encoder)),
    ]
    return lines, {"file": out, "setting": dict(setting), "test_apgr": confirmed}


def _tell(found: _Found, lines: list[str], learner: str) -> None:
    weak, strong = found.data.names
    rows, judged = found.data, found.judged
    say(f"{weak} {rows.weak.mean():.2%}, {strong} {rows.strong.mean():.2%} right on {len(rows)} rows; out of fold:")
    say()
    cells = [[learner, _interval(judged), _share(judged.cpt50), _share(judged.cpt80)], ["random", "0.500", "50.0%", "80.0%"]]
    cells += [[name, _interval(each), _share(each.cpt50), _share(each.cpt80)] for name, (each, _) in found.rivals.items()]
    say_table(["router", "APGR [95 %]", "CPT50", "CPT80"], cells)
    say()
    for name, (_, gap) in found.rivals.items():
        said = "better" if gap.better else "worse" if gap.worse else "no difference shown"
        say(f"against {name}: APGR {gap.mean:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}], {said}")
    length = found.rivals.get("longest first")
    if length is not None and length[0].signal and not length[1].better:
        say("it is not shown to beat the length of the text, which needs no training: `binary: {signal: length, ...}`")
    big = {name: lost for name, lost in found.lost.items() if lost >= _FEW}
    say("APGR lost when shuffled: " + (", ".join(f"{name} {lost:.3f}" for name, lost in big.items()) or "nothing by itself"))
    if not judged.signal:
        say("verdict: no signal. What it learned does no better than chance on rows it has not seen.")
        say(
            "No router was written: send a share blindly, or use a cascade, which sees the weak answer." if not lines else ""
        )
    else:
        say(f"verdict: a signal; at the threshold {found.cut.share:.1%} strong calls, quality {found.cut.quality:.2%}")
    for line in lines:
        say(line)


def _as_data(found: _Found, served: dict[str, Any]) -> dict[str, Any]:
    return {
        "signal": found.judged.signal, "rows": len(found.data), "weak": found.data.names[0], "strong": found.data.names[1],
        "out_of_fold": found.judged,
        "rivals": {name: {"judged": each, "gap": gap} for name, (each, gap) in found.rivals.items()},
        "importance": found.lost, "threshold": found.cut.threshold, "share": found.cut.share, "quality": found.cut.quality,
        **served,
    }  # fmt: skip


def _interval(judged: Judged) -> str:
    mean, low, high, _ = judged.apgr
    return f"{mean:.3f} [{low:.3f}, {high:.3f}]"


def _share(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1%}"
