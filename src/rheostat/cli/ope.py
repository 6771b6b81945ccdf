"""`rheostat ope`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rheostat.cli.console import note, say, say_json, say_table, told

if TYPE_CHECKING:
    from rheostat.lab.ope import Estimated, Log
    from rheostat.policies import Policy


@told
def ope(
    records: Annotated[str, typer.Argument(help="The records: a .sqlite or a .jsonl file.", metavar="RECORDS")],
    config: Annotated[str | None, typer.Option(help="Judge the policy of a route of this config.")] = None,
    route: Annotated[str | None, typer.Option(help="Only records of this route; with --config also its policy.")] = None,
    policy_file: Annotated[str | None, typer.Option(help="Judge the policy of this policy file.")] = None,
    policy: Annotated[str | None, typer.Option(help="Judge a policy written as in a config, such as 'large'.")] = None,
    price: Annotated[float, typer.Option(help="What a unit of cost is worth in units of reward.")] = 0.0,
    cluster: Annotated[str, typer.Option(help="Resampled together: session, tenant, request or a meta field.")] = "session",
    by: Annotated[str | None, typer.Option(help="A meta field that the regression may use, such as task.")] = None,
    regression: Annotated[str, typer.Option(help="ridge, or boosted (slower, bends).")] = "ridge",
    least_ess: Annotated[float, typer.Option(help="The effective sample size that is needed.")] = 50.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Estimate from records and feedback what another policy would have earned, without serving it.

    Works where chance took part in the logged choices (a split, a bandit, a sampled blend) and refuses where it did not.

    Example: `rheostat ope records.sqlite --policy large --by task`
    """
    from rheostat.lab.ope import evaluate, log_from_records

    if regression not in ("ridge", "boosted"):
        raise typer.BadParameter(f"--regression is ridge or boosted, got {regression!r}")
    name, judged = _given(config, route, policy_file, policy)
    log = log_from_records(
        records, judged, route=route, price=price, cluster=cluster, by=by, tell=lambda count: note(f"{count:,} records read")
    )
    try:
        found = evaluate(log, method=regression, least_ess=least_ess)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if as_json:
        say_json(_as_data(name, log, found))
        return
    _tell(name, log, found)


def _given(config: str | None, route: str | None, policy_file: str | None, written: str | None) -> tuple[str, Policy]:
    """The policy to be judged; what signals it reads must be in the records, so no scorer is opened."""
    from rheostat.cli.given_policy import given_policy, written_policy

    if config is not None or sum(each is not None for each in (policy_file, written)) != 1:
        given = given_policy(config, route or "default", policy_file, written)
        return given.name, given.policy
    if policy_file is not None:
        import msgspec

        place = Path(policy_file).absolute()
        quoted = msgspec.json.encode(place.name).decode()
        return policy_file, written_policy(f"{{file: {quoted}}}", str(place.parent), policy_file)
    assert written is not None
    return written, written_policy(written, ".", "--policy")


def _tell(name: str, log: Log, found: Estimated) -> None:
    from rheostat.lab.ope import ESTIMATORS, HEADLINE

    say(f"{name}, judged on {len(log):,} logged choices of {', '.join(log.actions)}")
    for reason, count in sorted(log.left_out.items(), key=lambda pair: -pair[1]):
        say(f"  left out: {count:,} x {reason}")
    value, lift = found.values[HEADLINE], found.lifts[HEADLINE]
    say()
    say(f"what was served earned  {_interval(found.logged)}")
    say(f"this policy would have  {_interval(value)}  (DR, 95 % interval)")
    say(f"difference              {_interval(lift)}: {_verdict(lift)}")
    say()
    say_table(
        ("estimator", "reward", "95 % interval", "difference"),
        [
            (one, f"{v.mean:.4f}", f"[{v.low:.4f}, {v.high:.4f}]", f"{found.lifts[one].mean:+.4f}")
            for one, v in ((one, found.values[one]) for one in ESTIMATORS)
        ],
    )
    overlap = found.overlap
    say()
    say(f"overlap: {overlap.n:,} rows count like {overlap.ess:,.0f} of its own; largest weight {overlap.max_weight:.3g}, "
        f"mean weight {overlap.mean_weight:.3f} (1 is right)")  # fmt: skip
    for warning in found.warnings:
        note(f"warning: {warning}")


def _verdict(lift: Any) -> str:
    if lift.better:
        return "better than what was served"
    return "worse than what was served" if lift.worse else "no difference can be told"


def _interval(found: Any) -> str:
    return f"{found.mean:.4f} [{found.low:.4f}, {found.high:.4f}]"


def _as_data(name: str, log: Log, found: Estimated) -> dict[str, Any]:
    return {
        "policy": name,
        "rows": len(log),
        "left_out": dict(log.left_out),
        "logged": found.logged._asdict(),
        "estimates": {one: value._asdict() for one, value in found.values.items()},
        "differences": {one: value._asdict() for one, value in found.lifts.items()},
        "ess": found.overlap.ess,
        "max_weight": found.overlap.max_weight,
        "mean_weight": found.overlap.mean_weight,
        "warnings": list(found.warnings),
    }
