"""`rheostat retune`."""

from __future__ import annotations

from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rheostat.cli.console import say, say_json, say_table, told
from rheostat.cli.limits import GOAL_HELP, goal_of
from rheostat.cli.table_warnings import warn, warn_of_load

if TYPE_CHECKING:
    from rheostat.lab.goal import Goal
    from rheostat.lab.retune import Move, Retuned


@told
def retune(
    policy: Annotated[str, typer.Argument(help="The policy in service: a policy file, or a config.", metavar="POLICY")],
    before: Annotated[str, typer.Option(help="The outcomes table with the old models.")],
    after: Annotated[str, typer.Option(help="The outcomes table with the new models, over the same rows.")],
    route: Annotated[str, typer.Option(help="Which route of the config.")] = "default",
    goal: Annotated[
        list[str] | None, typer.Option(help=f"{GOAL_HELP} Default: the policy file's, else the old share.")
    ] = None,
    out: Annotated[str | None, typer.Option(help="Where the new setting goes, as a policy file.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over the policy file that is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """After a model changed: what moves before traffic does, the new setting, and whether to act.

    The policy is replayed over the outcomes of the old and the new models on the same rows; a new setting is chosen on the
    new dev rows and judged on test.

    Example: `rheostat retune tuned.yaml --before old.parquet --after new.parquet --out tuned-new.yaml`
    """
    from rheostat.cli.given_policy import given_policy
    from rheostat.lab.outcomes_file import load
    from rheostat.lab.policy_file import write_policy_file
    from rheostat.lab.retune import retune as run
    from rheostat.lab.tune import by_cost

    if out is not None and Path(out).exists() and not force:
        raise typer.BadParameter(f"{out} is there already; name another --out, or add --force")
    content = _content(policy)
    is_file = content.get("kind") == "rheostat-policy"
    given = given_policy(None if is_file else policy, route, policy if is_file else None, None)
    warn_of_load(given.name, given.policy)
    fresh = load(after)
    wanted = goal_of(goal) if goal else _own_goal(content) if is_file else None
    warn(fresh, fresh.subset(fresh.split > 0), by_cost(fresh))
    found = run(given.policy, load(before), fresh, goal=wanted, scorers=given.scorers)
    if out is not None and found.proposed is not None:
        write_policy_file(found.proposed, fresh, out)
    say_json(_as_data(found)) if as_json else _tell(found, out)


def _content(path: str) -> dict[str, Any]:
    import yaml

    from rheostat.errors import NotFound

    try:
        found = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise NotFound(f"{path} is no YAML: {error}") from None
    return found if isinstance(found, dict) else {}


def _own_goal(content: dict[str, Any]) -> Goal | None:
    import msgspec

    from rheostat.lab.goal import Goal

    try:
        return msgspec.convert(content.get("goal") or None, Goal | None, strict=False)
    except (msgspec.ValidationError, TypeError):
        return None


def _as_data(found: Retuned) -> dict[str, Any]:
    import msgspec

    from rheostat.lab.policy_file import form

    moves = {name: msgspec.to_builtins(getattr(found, name)) for name in ("quality", "share", "cost", "models")}
    return {
        "act": found.act, "headline": found.headline, "reasons": found.reasons, "rows": found.rows, **moves,
        "goal": found.goal.words(), "current": form(found.current),
        "proposed": None if found.proposed is None else form(found.proposed.policy),
        "gain": found.gain, "saving": found.saving,
    }  # fmt: skip


def _tell(found: Retuned, out: str | None) -> None:
    from rheostat.cli.policy_words import in_words

    say(found.headline)
    for reason in found.reasons:
        say(f"- {reason}")
    say()
    say(f"goal: {found.goal.words()}")
    rows = [_row("quality", found.quality, 100.0, " %"), _row(f"calls of {found.stages[-1]}", found.share, 100.0, " %")]
    rows.append(_row("cost", found.cost, 1.0, ""))
    rows += [_row(f"{each.model} alone", each.accuracy, 100.0, " %") for each in found.models]
    say_table([f"the policy in service, {found.rows} test rows", "before", "after", "change [95 %]"], rows)
    say()
    for each in found.models:
        said = " -> ".join(each.versions)
        say(
            f"{each.model} ({said}): {each.same_labels:.1%} of the answers are as before; mean confidence "
            f"{_pair(each.confidence)}; calibration error {_pair(each.ece)}"
        )
    say()
    for word, policy in (("in service", found.current), ("new setting", found.proposed and found.proposed.policy)):
        say(f"{word}:")
        for line in in_words(policy) if policy is not None else ["none"]:
            say(f"  {line}")
    if found.proposed is not None:
        reported = found.proposed.reported
        say(f"  on test: {reported.quality.mean:.2%} at {reported.share.mean:.1%} calls of {reported.last}")
        if out is not None:
            say(f"wrote {out}")


def _pair(values: tuple[float, float]) -> str:
    return " -> ".join("unknown" if isnan(value) else f"{value:.3f}" for value in values)


def _row(name: str, move: Move, unit: float, sign: str) -> list[str]:
    change = move.change
    low, high = f"{change.low * unit:+.4g}", f"{change.high * unit:+.4g}"
    return [
        name, f"{move.before.mean * unit:.4g}{sign}", f"{move.after.mean * unit:.4g}{sign}",
        f"{change.mean * unit:+.4g} [{low}, {high}]",
    ]  # fmt: skip
