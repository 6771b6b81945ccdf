"""`rheostat report`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rheostat.cli.console import say, say_json, told
from rheostat.cli.limits import GOAL_HELP, STAGES_HELP, goal_of, stages_of
from rheostat.cli.table_warnings import warn, warn_of_load

if TYPE_CHECKING:
    from rheostat.lab.goal import Goal
    from rheostat.lab.outcomes import OutcomesTable
    from rheostat.lab.tune import Tuned


@told
def report(
    outcomes: Annotated[str, typer.Argument(help="The outcomes table (from evaluate).", metavar="OUTCOMES")],
    policy_file: Annotated[
        list[str] | None,
        typer.Option(help="A policy file to show beside what is tuned here for the same models; may be repeated."),
    ] = None,
    goal: Annotated[list[str] | None, typer.Option(help=GOAL_HELP)] = None,
    stages: Annotated[str | None, typer.Option(help=STAGES_HELP)] = None,
    out: Annotated[str, typer.Option(help="Where the report goes.")] = "report.html",
    title: Annotated[str, typer.Option(help="Its title.")] = "Routing report",
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdict as JSON.")] = False,
) -> None:
    """Write one HTML file that shows what routing brings on this data, and whether to believe it.

    Example: `rheostat report outcomes.parquet --policy-file tuned.yaml --out report.html`
    """
    from rheostat.lab.outcomes_file import load
    from rheostat.lab.report import write_report

    table = load(outcomes)
    names = stages_of(table, stages) if stages or not policy_file else _stages_in(policy_file, table)
    warn(table, table.subset(table.split > 0), names)
    wanted = (_goal_in(policy_file) if policy_file and not goal else None) or goal_of(goal or ["max-share=0.2"])
    try:
        tuned = [_tuned(each, table, names, wanted) for each in policy_file or []]
        said = write_report(
            table, out, title=title, stages=names, goal=wanted, tuned=tuned, command=f"rheostat {' '.join(sys.argv[1:])}"
        )  # fmt: skip
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if as_json:
        say_json({"report": out, "pays": said.pays, "use": said.use, "headline": said.headline,
                  "reasons": said.reasons, "blending": said.blending, "caution": said.caution})  # fmt: skip
        return
    say(said.headline)
    for line in said.reasons:
        say(f"  - {line}")
    say(f"  - {said.blending}")
    for line in said.caution:
        say(f"  ! {line}")
    say(f"wrote {out}")


def _stages_in(places: list[str], table: OutcomesTable) -> tuple[str, ...]:
    """The models that the given policies use, in the table's order: the report is about them."""
    from rheostat.cli.given_policy import given_policy
    from rheostat.policies import models_of

    used = {model for place in places for model in models_of(given_policy(None, "", place, None).policy)}
    return tuple(model for model in table.models if model in used)


def _goal_in(places: list[str]) -> Goal | None:
    """The goal that the first policy file was tuned for, so that what is tuned here has the same."""
    import msgspec
    import yaml

    from rheostat.lab.goal import Goal

    content = yaml.safe_load(Path(places[0]).read_text(encoding="utf-8"))
    written = content.get("goal") if isinstance(content, dict) else None
    return msgspec.convert(written, Goal) if written else None


def _tuned(place: str, table: OutcomesTable, names: tuple[str, ...], goal: Goal) -> Tuned:
    """A policy file's policy with its figures on this table."""
    from rheostat.cli.given_policy import given_policy
    from rheostat.lab.figures import figures
    from rheostat.lab.tune import Tuned
    from rheostat.policies.reads import without_load

    given = given_policy(None, "", place, None)
    warn_of_load(given.name, given.policy)
    chosen, reported = (
        figures(
            given.policy, table.select(split=split), names, split=split, scorers=given.scorers, spends=given.spends,
            max_cost=given.max_cost,
        )[0]
        for split in ("dev", "test")
    )  # fmt: skip
    return Tuned(
        kind=Path(place).name, stages=names, goal=goal, policy=given.policy, chosen=chosen, reported=reported,
        notes=(unseen,) if (unseen := without_load(given.policy)) else (),
    )  # fmt: skip
