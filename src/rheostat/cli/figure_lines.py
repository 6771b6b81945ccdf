"""What a policy achieves, as a table for people and as plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rheostat.cli.console import say, say_table

if TYPE_CHECKING:
    from rheostat.lab.bootstrap import Difference, Interval
    from rheostat.lab.figures import Figures


def say_figures(found: Figures, name: str = "policy") -> None:
    """Print one policy beside each model alone, blind chance and the oracle, on the same rows."""
    head = [
        f"on {found.split or 'all rows'} (n={found.n})",
        "quality [95 %]",
        f"calls of {found.last}",
        "cost",
        "P50",
        "P95",
        "P99",
    ]
    waits = found.latency_s
    rows = [
        [name, _share(found.quality), _share(found.share), _cost(found.cost), _ms(waits.p50), _ms(waits.p95), _ms(waits.p99)]
    ]
    for each in found.alone:
        waits, share = each.latency_s, "100%" if each.model == found.last else "0%"
        cells = [_ms(waits.p50), _ms(waits.p95), _ms(waits.p99)]
        rows.append([f"{each.model} alone", _share(each.quality), share, f"{each.cost:.4g}", *cells])
    rows.append(["same share, blindly", f"{found.random:.2%}", f"{found.share.mean:.1%}", "", "", "", ""])
    rows.append(["oracle (always knows)", f"{found.oracle:.2%}", "", f"{found.oracle_cost:.4g}", "", "", ""])
    say_table(head, rows)
    say()
    for against, gap in (
        (found.first, found.vs_first),
        (found.last, found.vs_last),
        ("the same share blindly", found.vs_random),
    ):
        say(f"{name} against {against}: {_points(gap)}")
    for reason, count in found.left_out.items():
        say(f"left out: {count} rows, {reason}")
    if found.unanswered:
        say(f"left out: {found.unanswered} rows that ended in an error")
    if found.reviewed:
        _say_review(found)


def _say_review(found: Figures) -> None:
    """How many answers were left to a person, and what another floor would have left."""
    everything = found.n + found.reviewed
    say(f"left to a person: {found.reviewed} of {everything} rows ({found.reviewed / everything:.1%}); above are the others")
    say()
    say_table(
        ["floor of the review", "answered", "wrong among them", "left to a person", "wrong guesses there"],
        [
            [f"{each.below:g}", f"{each.coverage:.1%}", f"{each.error:.1%}", f"{1.0 - each.coverage:.1%}",
             "-" if each.coverage == 1.0 else f"{each.left_error:.1%}"]
            for each in found.coverage
        ],
    )  # fmt: skip


def as_data(found: Figures) -> dict[str, Any]:
    """Return the figures as plain data."""
    import msgspec

    data: dict[str, Any] = msgspec.to_builtins(found)
    return data


def _share(found: Interval) -> str:
    return f"{found.mean:.2%} [{found.low:.2%}, {found.high:.2%}]"


def _cost(found: Interval) -> str:
    return f"{found.mean:.4g} [{found.low:.4g}, {found.high:.4g}]"


def _points(gap: Difference) -> str:
    told = "better" if gap.better else ("worse" if gap.worse else "no difference shown")
    return f"{gap.mean * 100:+.2f} points [{gap.low * 100:+.2f}, {gap.high * 100:+.2f}]: {told}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms"
