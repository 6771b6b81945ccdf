"""What a smaller model loses and gains, for people and as plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rheostat.cli.console import say

if TYPE_CHECKING:
    from rheostat.lab.smaller import Smaller


def say_smaller(found: Smaller) -> None:
    """Print agreement, accuracy, size, speed, and where the small model sits on the curve."""
    agreed = found.agreement
    say(f"{found.small} against {found.large}, {found.rows} test rows:")
    say(f"  the same answer: {agreed.mean:.1%} [{agreed.low:.1%}, {agreed.high:.1%}]")
    if found.accuracy is not None and found.change is not None:
        large, small = found.accuracy
        gap = found.change
        say(
            f"  accuracy: {large.mean:.2%} -> {small.mean:.2%}, {gap.mean * 100:+.2f} points "
            f"[{gap.low * 100:+.2f}, {gap.high * 100:+.2f}]"
        )
    else:
        say("  accuracy: unknown, no test row has a right label")
    if all(found.sizes):
        say(f"  size: {found.sizes[0] / 1e6:.3g} MB -> {found.sizes[1] / 1e6:.3g} MB")
    say(f"  speed: {found.speed.mean:.3g} times as fast [{found.speed.low:.3g}, {found.speed.high:.3g}], single rows")
    if found.on_hull is not None:
        where = (
            "on the hull: no mix of the others does as well for as little"
            if found.on_hull
            else "under the hull of the others"
        )
        say(f"  on the cost-quality curve: {where}")
    if found.cascade is not None:
        reported = found.cascade.reported
        say(
            f"  before {found.large}: {reported.quality.mean:.2%} at {reported.share.mean:.1%} of its calls, "
            f"which {'pays' if found.worth else 'does not pay'}"
        )


def as_data(found: Smaller) -> dict[str, Any]:
    """Return it as plain data."""
    import msgspec

    from rheostat.lab.policy_file import form

    names = ("large", "small", "rows", "agreement", "accuracy", "change", "sizes", "speed", "on_hull", "worth")
    data: dict[str, Any] = {name: msgspec.to_builtins(getattr(found, name)) for name in names}
    data["cascade"] = None if found.cascade is None else form(found.cascade.policy)
    return data
