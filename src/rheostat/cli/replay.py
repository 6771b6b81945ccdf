"""`rheostat replay`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from rheostat.cli.console import FAILED, note, say, say_json, told
from rheostat.cli.limits import STAGES_HELP, stages_of
from rheostat.cli.table_warnings import warn, warn_of_load

if TYPE_CHECKING:
    from rheostat.cli.given_policy import Given
    from rheostat.lab.outcomes import OutcomesTable
    from rheostat.lab.replay import ReplayResult
    from rheostat.policies import Policy

_TIMED = 20_000


@told
def replay(
    outcomes: Annotated[str, typer.Argument(help="The outcomes table (from evaluate).", metavar="OUTCOMES")],
    config: Annotated[str | None, typer.Option(help="Replay the policy of a route of this config.")] = None,
    route: Annotated[str, typer.Option(help="Which route of the config.")] = "default",
    policy_file: Annotated[str | None, typer.Option(help="Replay the policy of this policy file.")] = None,
    policy: Annotated[
        str | None,
        typer.Option(help="Replay a policy written as in a config, such as '{cascade: {...}}' or '{mine:Own: {}}'."),
    ] = None,
    split: Annotated[str, typer.Option(help="train, dev, test, all, or auto: test if the table has such rows.")] = "auto",
    stages: Annotated[str | None, typer.Option(help=STAGES_HELP)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Let a policy decide every row of an outcomes table: the same policy that serves, no model is asked.

    Example: `rheostat replay outcomes.parquet --config rheostat.yaml`
    """
    from rheostat.cli.figure_lines import as_data, say_figures
    from rheostat.cli.given_policy import given_policy
    from rheostat.cli.policy_words import in_words
    from rheostat.lab.figures import figures
    from rheostat.lab.outcomes_file import load

    given = given_policy(config, route, policy_file, policy)
    table = load(outcomes)
    name, part = rows_of(table, split)
    models = stages_of(table, stages)
    try:
        found, played = figures(
            given.policy, part, models, split=name, fallback=given.fallback, scorers=given.scorers, spends=given.spends,
            max_cost=given.max_cost,
        )  # fmt: skip
        rate = _rate(given.policy, part, given)
    except (ValueError, KeyError) as error:
        raise typer.BadParameter(str(error.args[0]) if error.args else str(error)) from None
    warn(table, part, models, name, thresholds=False)
    warn_of_load(given.name, given.policy)
    if as_json:
        say_json({"policy": given.name, "figures": as_data(found), "counts": played.counts(),
                  "policy_failed": played.failed[0], "rows_per_s": rate})  # fmt: skip
        _warn(played)
        return
    say(f"{given.name}:")
    for line in in_words(given.policy):
        say(f"  {line}")
    say()
    say_figures(found)
    say()
    say(f"replayed at {rate:,.0f} rows/s")
    _warn(played)


def _warn(played: ReplayResult) -> None:
    """Say where the policy itself failed: the figures there are the default model's, not the policy's.

    Raises:
        typer.Exit: it failed on every row.
    """
    count, first = played.failed
    if not count:
        return
    note(f"warning: the policy failed on {count} of {len(played.table)} rows (first: {first}); the default model answered")
    if count == len(played.table):
        note("none of these figures are the policy's")
        raise typer.Exit(FAILED)


def rows_of(table: OutcomesTable, split: str) -> tuple[str, OutcomesTable]:
    """Return the rows of a split with its name; `auto` is test when the table has such rows, else all of them."""
    from rheostat.lab.outcomes import SPLITS

    if split not in (*SPLITS, "all", "auto"):
        raise typer.BadParameter(f"--split is one of {', '.join(SPLITS)}, all or auto, got {split!r}")
    if split == "auto":
        split = "test" if len(table.select(split="test")) else "all"
    return split, table if split == "all" else table.select(split=split)


def _rate(policy: Policy, table: OutcomesTable, given: Given) -> float:
    """Rows a second of the replay itself, measured on some of the rows."""
    import numpy as np

    from rheostat.lab.replay import replay as play

    part = table.subset(np.arange(min(len(table), _TIMED)))
    began = time.perf_counter()
    play(policy, part, scorers=given.scorers, spends=given.spends, max_cost=given.max_cost)
    return len(part) / max(time.perf_counter() - began, 1e-9)
