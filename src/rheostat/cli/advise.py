"""`rheostat advise`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rheostat.cli.console import FAILED, say, say_json, told
from rheostat.cli.limits import STAGES_HELP, stages_of

if TYPE_CHECKING:
    from rheostat.lab.advise import Advice


@told
def advise(
    outcomes: Annotated[str, typer.Argument(help="The outcomes table (from evaluate).", metavar="OUTCOMES")],
    stages: Annotated[str | None, typer.Option(help=STAGES_HELP)] = None,
    max_share: Annotated[
        float, typer.Option(help="The budget: the share of requests that may call the last model.", min=0.0, max=1.0)
    ] = 0.2,
    margin: Annotated[
        float, typer.Option(help="Accuracy that counts as equal when something is saved.", min=0.0, max=1.0)
    ] = 0.01,
    out: Annotated[str | None, typer.Option(help="Where the advised policy goes, as a policy file.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over the policy file that is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say whether to route at all, with which policy, what it brings, how sure that is, or which single model to use.

    Everything is decided on dev and proven on test. Traps in the table are named first: one class, constant confidences,
    too few rows, a dearer model that is no better, under-trained models, rows that stand in two splits.

    Example: `rheostat advise outcomes.parquet`
    """
    from rheostat.lab.advise import Settings
    from rheostat.lab.advise import advise as run
    from rheostat.lab.outcomes_file import load
    from rheostat.lab.policy_file import write_policy_file

    if out is not None and Path(out).exists() and not force:
        raise typer.BadParameter(f"{out} is there already; name another --out, or add --force")
    table = load(outcomes)
    try:
        found = run(table, models=stages_of(table, stages), settings=Settings(max_share=max_share, margin=margin))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if out is not None and found.followed is not None:
        write_policy_file(found.followed.tuned, table, out)
    say_json(_as_data(found)) if as_json else _tell(found, out)
    if not found.use:
        raise typer.Exit(FAILED)


def _as_data(found: Advice) -> dict[str, Any]:
    from rheostat.lab.policy_file import form

    return {
        "use": found.use, "single": found.single, "escalate": found.escalate, "blend": found.blend, "levels": found.levels,
        "sure": found.sure, "headline": found.headline, "reasons": found.reasons, "flags": found.flags,
        "policy": None if found.followed is None else form(found.followed.tuned.policy),
        "claims": [
            {"kind": each.kind, "policy": form(each.tuned.policy), "proven": each.proven, "p": each.p,
             "against": each.against, "quality": each.quality, "saving": each.saving}
            for each in found.claims
        ],
    }  # fmt: skip


def _tell(found: Advice, out: str | None) -> None:
    from rheostat.cli.figure_lines import say_figures
    from rheostat.cli.policy_words import in_words

    say(found.headline)
    if found.followed is not None:
        say(f"{found.levels} models take part; sure to {found.sure:.2%}")
        for line in in_words(found.followed.tuned.policy):
            say(f"  {line}")
        say()
        say_figures(found.followed.tuned.reported, "advised")
        for note in found.followed.tuned.notes:
            say(f"note: {note}")
    say()
    for reason in found.reasons:
        say(f"- {reason}")
    for flag in found.flags:
        say(f"warning: {flag.kind}, {flag.about}: {flag.text}")
    if found.followed is not None:
        say()
        say(f"wrote {out}" if out is not None else "write it as a policy file with --out tuned.yaml")
