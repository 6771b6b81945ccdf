"""`rheostat tune`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rheostat.cli.console import note, say, say_json, told
from rheostat.cli.limits import GOAL_HELP, STAGES_HELP, goal_of, stages_of
from rheostat.cli.table_warnings import warn

if TYPE_CHECKING:
    from rheostat.lab.tune import Tuned

KINDS = {"cascade": "cascade", "cascade-blend": "cascade+blend", "blend": "blend", "delegate": "delegate"}


@told
def tune(
    outcomes: Annotated[str, typer.Argument(help="The outcomes table (from evaluate).", metavar="OUTCOMES")],
    goal: Annotated[list[str] | None, typer.Option(help=GOAL_HELP)] = None,
    policy: Annotated[str, typer.Option(help=f"What to tune: {', '.join(KINDS)}.")] = "cascade",
    weak: Annotated[str | None, typer.Option(help="The cheap model (with --strong).")] = None,
    strong: Annotated[str | None, typer.Option(help="The dear model (with --weak).")] = None,
    stages: Annotated[str | None, typer.Option(help=STAGES_HELP)] = None,
    mean_only: Annotated[
        bool, typer.Option("--mean-only", help="Keep a limit by the mean, not by its one-sided 95 % bound.")
    ] = False,
    choose_on: Annotated[str, typer.Option(help="The split to choose on.")] = "dev",
    report_on: Annotated[str, typer.Option(help="The split to report on.")] = "test",
    out: Annotated[str, typer.Option(help="Where the policy file goes.")] = "tuned.yaml",
    force: Annotated[bool, typer.Option("--force", help="Write over the policy file that is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Choose a threshold (or weights) that keeps a goal, on one split, and say what it does on another.

    The policy file holds the policy, the models' versions it was tuned with, and the point it should hold. Without a goal
    the last model may be called for at most 20 % of the requests.

    Example: `rheostat tune outcomes.parquet --goal max-share=0.2 --out tuned.yaml`
    """
    from rheostat.lab.outcomes_file import load
    from rheostat.lab.policy_file import write_policy_file
    from rheostat.lab.tune import tune as run

    if policy not in KINDS:
        raise typer.BadParameter(f"--policy is one of {', '.join(KINDS)}, got {policy!r}")
    wanted = goal_of(goal or ["max-share=0.2"], not mean_only)
    table = load(outcomes)
    chosen = stages_of(table, stages, weak, strong)
    warn(table, table.subset(table.split > 0), chosen, thresholds=policy != "blend")
    target = Path(out)
    if target.exists() and not force:
        raise typer.BadParameter(f"{out} is there already; --force writes over it, --out names another file")
    try:
        tuned = run(table, wanted, stages=chosen, kind=KINDS[policy], choose=choose_on, report=report_on)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    version = write_policy_file(tuned, table, target)
    if as_json:
        say_json(_as_data(tuned, target, version))
    else:
        _tell(tuned, target, version)


def _as_data(tuned: Tuned, target: Path, version: str) -> dict[str, Any]:
    from rheostat.cli.figure_lines import as_data
    from rheostat.lab.policy_file import form

    return {
        "policy_file": str(target), "version": version, "kind": tuned.kind, "stages": tuned.stages, "goal": tuned.goal,
        "policy": form(tuned.policy), "chosen": as_data(tuned.chosen), "reported": as_data(tuned.reported),
        "notes": tuned.notes,
    }  # fmt: skip


def _tell(tuned: Tuned, target: Path, version: str) -> None:
    from rheostat.cli.figure_lines import say_figures
    from rheostat.cli.policy_words import in_words
    from rheostat.lab.verdict import pays, reasons

    say(f"goal: {tuned.goal.words()}" + ("" if not tuned.goal.sure else ", kept by its 95 % bound"))
    say(f"chosen on {tuned.chosen.split} (n={tuned.chosen.n}):")
    for line in in_words(tuned.policy):
        say(f"  {line}")
    say()
    say_figures(tuned.reported, "tuned")
    say()
    for told_ in tuned.notes:
        note(f"note: {told_}")
    if pays(tuned.reported):
        say("verdict: it pays on fresh rows")
    else:
        say("verdict: it does not pay on fresh rows; the reasons:")
        for reason in reasons(tuned.reported):
            say(f"  - {reason}")
    say()
    say(f"wrote {target} (version {version}); use it in a route of your config:")
    say(f"  policy: {{file: {target}}}")
