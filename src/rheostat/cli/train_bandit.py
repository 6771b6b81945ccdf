"""`rheostat train bandit`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rheostat.cli.console import note, say, say_json, say_table, told
from rheostat.cli.table_warnings import warn

if TYPE_CHECKING:
    from rheostat.lab.bandit import Updated
    from rheostat.lab.outcomes import OutcomesTable
    from rheostat.policies import Bandit


@told
def bandit(
    outcomes: Annotated[
        str | None, typer.Argument(help="An outcomes table: arms nothing is known of start from it.", metavar="[OUTCOMES]")
    ] = None,
    from_records: Annotated[str | None, typer.Option(help="Records with feedback: a .sqlite or a .jsonl file.")] = None,
    policy_file: Annotated[str | None, typer.Option(help="Go on from the bandit in this policy file.")] = None,
    arms: Annotated[
        str | None, typer.Option(help="The models, with commas between (default: the file's or table's).")
    ] = None,
    algorithm: Annotated[str | None, typer.Option(help="thompson, epsilon or linucb (which needs --features).")] = None,
    segment: Annotated[str | None, typer.Option(help="A meta field whose values learn on their own, such as task.")] = None,
    features: Annotated[str | None, typer.Option(help="Signals that linucb reads, with commas between.")] = None,
    price: Annotated[float, typer.Option(help="What a unit of cost is worth in units of reward.")] = 0.0,
    weight: Annotated[float, typer.Option(help="What a labelled row counts for, in live requests.")] = 0.5,
    most: Annotated[float, typer.Option(help="Live requests that the labelled rows of a model count for at most.")] = 200.0,
    floor: Annotated[float | None, typer.Option(help="Least share of every model.")] = None,
    guard: Annotated[float | None, typer.Option(help="Relative loss to the best single model that is allowed.")] = None,
    out: Annotated[str, typer.Option(help="Where the policy file goes.")] = "bandit.yaml",
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is not the one gone on from.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Make a bandit that knows what labelled outcomes say, or bring one up to date from records and feedback.

    The file is a policy file: name it in the config, and a running gateway takes each new version up. Judgements that are in
    the file already are not counted again, so the update can run every few minutes.

    Example: `rheostat train bandit outcomes.parquet --segment task --floor 0.02`, then
    `rheostat train bandit --policy-file bandit.yaml --from-records records.sqlite`
    """
    from rheostat.lab.bandit_file import read_bandit, write_bandit
    from rheostat.lab.outcomes_file import load

    if policy_file is None and outcomes is None and arms is None:
        raise typer.BadParameter(
            "name an outcomes table, a bandit to go on from (--policy-file), or --arms to start from nothing"
        )
    table = load(outcomes) if outcomes is not None else None
    if table is not None:
        warn(table, table, table.models, thresholds=False)
    before, versions = read_bandit(policy_file) if policy_file is not None else (None, {})
    given: dict[str, Any] = {"algorithm": algorithm, "segment": segment, "floor": floor, "guard": guard}
    given["features"] = _names(features)
    given["arms"] = _names(arms) or (table.models if before is None and table is not None else None)
    given["rewards"] = "any" if price and before is None else None
    try:
        policy, updates = _learned(_policy(before, given), table, from_records, price, (weight, most))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    goes_on = policy_file is not None and Path(out).exists() and Path(out).samefile(policy_file)
    if Path(out).exists() and not force and not goes_on:
        raise typer.BadParameter(f"{out} is there already; --force writes over it, --policy-file {out} brings it up to date")
    hashed = ""
    if table is not None:
        versions, hashed = {name: info.version for name, info in table.model_info.items()} | versions, table.data_hash
    notes = tuple(f"{what}: {sum(found.taken.values())} rewards" for what, found in updates)
    version = write_bandit(policy, out, versions=versions, data_hash=hashed, notes=notes)
    if as_json:
        said = {what: {"taken": found.taken, "left_out": found.left_out} for what, found in updates}
        shares = dict(zip(policy.arms, _shares(policy), strict=True))
        say_json({"file": out, "version": version, "shares": shares, "updates": said})
        return
    _tell(policy, updates)
    say(f"written to {out} (version {version}); in the config: policy: {{file: {Path(out).name}}}")


def _learned(
    policy: Bandit, table: OutcomesTable | None, records: str | None, price: float, counts: tuple[float, float]
) -> tuple[Bandit, list[tuple[str, Updated]]]:
    """Take in the table (arms nothing is known of), then the records; `counts` are weight and most of `warm_start`."""
    from rheostat.lab.bandit import from_records, warm_start

    updates: list[tuple[str, Updated]] = []
    if table is not None:
        found = warm_start(policy, table, weight=counts[0], most=counts[1], price=price)
        updates.append((f"outcomes ({counts[0]:g} each, {counts[1]:g} at most)", found))
        policy = found.policy
    if records is not None:
        updates.append(("records", from_records(policy, records, price=price)))
        policy = updates[-1][1].policy
    return policy, updates


def _names(text: str | None) -> tuple[str, ...] | None:
    return tuple(name.strip() for name in text.split(",") if name.strip()) if text is not None else None


def _policy(before: Bandit | None, given: dict[str, Any]) -> Bandit:
    """The bandit to start from: the one of the file, changed by what was asked for; what left arms earned is forgotten."""
    from msgspec import structs

    from rheostat.policies import Bandit

    asked = {name: value for name, value in given.items() if value is not None}
    if before is None:
        return Bandit(**asked)
    for name in ("algorithm", "segment", "features"):
        if name in asked and asked[name] != getattr(before, name):
            raise ValueError(f"the bandit in the file has {name} {getattr(before, name)!r}; make a new one to change that")
    stay = asked.get("arms", before.arms)
    kept: dict[str, Any] = {"seen": {arm: seen for arm, seen in before.seen.items() if arm in stay}}
    kept["linear"] = {arm: linear for arm, linear in before.linear.items() if arm in stay}
    kept["segments"] = {
        name: {arm: seen for arm, seen in rows.items() if arm in stay} for name, rows in before.segments.items()
    }
    return structs.replace(before, **(asked | kept))


def _shares(policy: Bandit) -> list[float | None]:
    """Every arm's share of all traffic; None where signals decide."""
    return [None] * len(policy.arms) if policy.algorithm == "linucb" else list(policy.shares().tolist())


def _tell(policy: Bandit, updates: list[tuple[str, Updated]]) -> None:
    for what, found in updates:
        say(f"{what}: {', '.join(f'{count:,} of {arm}' for arm, count in found.taken.items()) or 'nothing new'}")
        for reason, count in sorted(found.left_out.items(), key=lambda pair: -pair[1]):
            note(f"  left out: {count:,} x {reason}")
    believed = policy.believed()
    rows = []
    for arm, share, mean, sd in zip(policy.arms, _shares(policy), believed.mean.tolist(), believed.sd.tolist(), strict=True):
        seen = policy.seen.get(arm)
        known = f"{seen.n:,.0f}" if seen is not None else "0"
        rows.append((arm, known, f"{mean:.4f} ± {2 * sd:.4f}", "by signals" if share is None else f"{share:.1%}"))
    say_table(("model", "requests", "reward believed (± 2 sd)", "share of the traffic"), rows)
    if policy.segments:
        say(f"{len(policy.segments)} values of {policy.segment} learn on their own")
