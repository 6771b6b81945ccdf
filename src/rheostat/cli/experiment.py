"""`rheostat experiment`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rheostat.cli.console import note, say, say_json, say_table, told
from rheostat.cli.table_warnings import warn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rheostat.lab.contribution import Contribution
    from rheostat.lab.experiment import Contender, Experiment
    from rheostat.lab.outcomes import OutcomesTable

METRIC_HELP = (
    "What to measure: accuracy, log-loss, auc, top@K (share of hits among a user's K best rows), reward:meta.FIELD. "
    "The first one decides; may be repeated (default: accuracy)."
)
_TAKEN_APART = 20_000  # rows enough to say what each model brought


@told
def experiment(
    outcomes: Annotated[str, typer.Argument(help="The outcomes table (from evaluate).", metavar="OUTCOMES")],
    policy: Annotated[
        list[str],
        typer.Option(
            help="NAME=POLICY, at least two: a policy file, CONFIG#ROUTE, a model, or a policy written as in a config.",
            metavar="NAME=POLICY",
        ),
    ],
    baseline: Annotated[str, typer.Option(help="The policy the others are compared with (default: the first).")] = "",
    metric: Annotated[list[str] | None, typer.Option(help=METRIC_HELP)] = None,
    positive: Annotated[str, typer.Option(help="The label that counts as a hit, for auc and top@K.")] = "",
    rank_by: Annotated[str, typer.Option(help="The meta field whose rows are ranked together, for top@K.")] = "",
    cluster: Annotated[str, typer.Option(help="The meta field whose rows belong together (meta.user).")] = "",
    group: Annotated[list[str] | None, typer.Option(help="A meta field to compare groups of; may be repeated.")] = None,
    split: Annotated[str, typer.Option(help="train, dev, test, all, or auto: test if the table has such rows.")] = "auto",
    out: Annotated[str, typer.Option("--report", help="Write an HTML report to this file.")] = "",
    title: Annotated[str, typer.Option(help="The report's title.")] = "Experiment",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare any policies on the same rows: metric, latency, cost, weights, fairness, significance.

    Example: `rheostat experiment outcomes.parquet --policy small=fast --policy tuned=tuned.yaml --report experiment.html`
    """
    from rheostat.cli.replay import rows_of
    from rheostat.lab.experiment import experiment as run
    from rheostat.lab.experiment import parse_metric
    from rheostat.lab.outcomes_file import load

    if out and Path(out).exists() and Path(out).samefile(outcomes):
        raise typer.BadParameter(f"--report {out} is the outcomes table itself; name another file")
    table = load(outcomes)
    name, part = rows_of(table, split)
    policies = _contenders(policy)
    warn(table, part, table.models, name, thresholds=False)
    try:
        found = run(
            part,
            policies,
            baseline=baseline,
            metrics=[parse_metric(each, positive=positive, by=rank_by) for each in metric or ["accuracy"]],
            cluster=cluster,
            groups=group or (),
            split=name,
            progress=note,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if out:
        from rheostat.lab.experiment.page import write_experiment

        command = shlex.join(["rheostat", *sys.argv[1:]])
        write_experiment(found, out, title=title, brought=_brought(part, policies, group or ()), command=command)
    if as_json:
        say_json(found)
    else:
        _tell(found)
    if out:
        note(f"wrote {out}")


def _contenders(pairs: Sequence[str]) -> dict[str, Contender]:
    """Read NAME=POLICY; a policy is a policy file, a config with its route, or written out."""
    from rheostat.cli.given_policy import given_policy
    from rheostat.lab.experiment import Contender

    found: dict[str, Contender] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.strip() or not text.strip():
            raise typer.BadParameter(f"--policy takes NAME=POLICY, got {pair!r}")
        if name in found:
            raise typer.BadParameter(f"--policy: the name {name!r} is given twice")
        place, _, route = text.partition("#")
        if route and Path(place).is_file():
            given = given_policy(place, route, None, None)
        elif Path(text).is_file():
            given = given_policy(None, "", text, None)
        else:
            given = given_policy(None, "", None, text)
        found[name] = Contender(given.policy, given.scorers, given.fallback, given.spends, given.max_cost)
    return found


def _brought(table: OutcomesTable, policies: Mapping[str, Contender], groups: Sequence[str]) -> list[Contribution]:
    """What each model brought, for the policies that have a few; on some of the rows where there are many."""
    import numpy as np

    from rheostat.lab.contribution import MOST_MODELS, contribution
    from rheostat.lab.segments import by_confidence, by_meta
    from rheostat.policies import models_of

    at = np.unique(np.linspace(0, len(table) - 1, min(len(table), _TAKEN_APART)).astype(int))
    some = table.subset(at)
    found = []
    for name, one in policies.items():
        models = models_of(one.policy)
        if 2 <= len(models) <= MOST_MODELS:
            segments = [*(by_meta(some, field) for field in groups), by_confidence(some, models[0])]
            found.append(contribution(name, one.policy, some, segments=segments, scorers=one.scorers))
    return found


def _tell(found: Experiment) -> None:
    from rheostat.lab.experiment.words import amount, gap_words

    say(
        f"on {found.split or 'all rows'}: {found.rows:,} rows"
        + (f", {found.units:,} {found.cluster}" if found.cluster else "")
    )
    names = list(found.arms[0].metrics)
    head = ["policy", *names, f"against {found.baseline}", "verdict", "cost", "P50", "P95", "P99", "one model alone"]
    rows = [
        [
            arm.name,
            *(amount(found, arm.metrics[name].mean, name) for name in names),
            gap_words(found, arm),
            arm.versus.said if arm.versus is not None else "",
            f"{arm.cost.mean:.4g}",
            *(f"{seconds * 1000:.3g} ms" for seconds in (arm.latency_s.p50, arm.latency_s.p95, arm.latency_s.p99)),
            f"{arm.alone:.0%}",
        ]
        for arm in found.arms
    ]
    say_table(head, rows)
    say()
    say(found.headline)
    for line in found.reasons:
        say(f"  - {line}")
    for line in found.caution:
        say(f"  ! {line}")
    for reason, count in found.left_out.items():
        say(f"left out: {count} rows, {reason}")
