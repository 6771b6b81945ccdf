"""`rheostat consistency`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rheostat.cli.console import FAILED, say, say_json, told

if TYPE_CHECKING:
    from rheostat.lab.consistency import Consistency
    from rheostat.lab.redecide import Way


@told
def consistency(
    records: Annotated[str, typer.Argument(help="The records: a .sqlite or a .jsonl file.", metavar="RECORDS")],
    config: Annotated[str, typer.Option(help="The config that served them.")] = "rheostat.yaml",
    sample: Annotated[int, typer.Option(help="How many records are compared, chosen by a hash of their id.", min=1)] = 1000,
    any_version: Annotated[
        bool, typer.Option("--any-version", help="Compare also with records that another version of the policy left.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Decide and mix stored requests again, without asking a model, and compare with what was served.

    Ends with status 1 when anything differs.

    Example: `rheostat consistency records.sqlite --config rheostat.yaml`
    """
    from rheostat.lab.consistency import consistency as compare
    from rheostat.lab.consistency import sampled
    from rheostat.lab.records import read_routed

    found = compare(sampled(read_routed(records), sample), _ways(config), any_version=any_version)
    if as_json:
        say_json(found)
    else:
        _tell(found)
    if found.kinds:
        raise typer.Exit(FAILED)


def _ways(config: str) -> dict[str, Way]:
    from rheostat.cli.given_policy import given_policy
    from rheostat.config import load_config
    from rheostat.lab.redecide import Way
    from rheostat.resilience.ladder import FallbackSettings, Link
    from rheostat.types import ModelView

    loaded = load_config(config)
    models = loaded.config.models
    found = {}
    for name, settings in loaded.config.routes.items():
        given = given_policy(config, name, None, None)
        allowed = settings.models or tuple(models)
        found[name] = Way(
            policy=given.policy,
            fallback=given.fallback or FallbackSettings(),
            links={model: Link(models[model].peers, models[model].lighter, models[model].cost) for model in allowed},
            views={
                model: ModelView(model, cost=one.cost, tier=one.tier, tags=one.tags) for model, one in models.items()
            },
            scorers=given.scorers,
            version=loaded.policy_versions[name],
        )  # fmt: skip
    return found


def _tell(found: Consistency) -> None:
    say(f"{found.records:,} records: {found.mixed:,} mixed again, {found.decided:,} decided again, {found.agreed:,} equal")
    for word, counts in (("not mixed again", found.not_mixed), ("not decided again", found.not_decided)):
        for reason, count in sorted(counts.items(), key=lambda pair: -pair[1]):
            say(f"  {word}: {count:,} x {reason}")
    if not found.kinds:
        differs = "nothing differs from what was served" if found.mixed or found.decided else "nothing could be compared"
        say(differs if found.decided or not found.mixed else f"{differs}, as far as mixing goes; no decision was compared")
        return
    say(f"differences: {', '.join(f'{what} {count:,} x' for what, count in sorted(found.kinds.items()))}")
    for one in found.mismatches[:20]:
        say(f"  {one.request}: {one.what} served {one.served}, again {one.again}")
        say(f"    {one.reason}")
    if (rest := sum(found.kinds.values()) - 20) > 0:
        say(f"  ... and {rest:,} more; --json lists the first 100, and `rheostat explain ID` tells one request")
