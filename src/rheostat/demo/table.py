"""The results as lines of text that fit a terminal of 80 columns, and as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from rheostat.demo.results import Line, Results
from rheostat.lab.bootstrap import Difference


def table_lines(found: Results) -> list[str]:
    """Return the table of all ways, the paired differences, and how to read them."""
    head = ["", "accuracy [95 %]", f"to {found.last}", "cost", "P50", "P95", "P99"]
    rows = [_cells(line) for line in found.lines]
    rows.append(["oracle", f"{found.oracle:.2%}".ljust(len(rows[0][1])), "", _short(found.oracle_cost), "", "", ""])
    gaps = [
        [line.title, *(_gap(line.gaps.get(rival)) for rival in found.rivals)]
        for line in found.lines
        if set(found.rivals) <= set(line.gaps)
    ]
    told = [f"  ! {line.title}: {line.unanswered} requests got no answer; they count as wrong"
            for line in found.lines if line.unanswered]  # fmt: skip
    return [
        *_aligned(head, rows),
        "",
        *_aligned(["points [95 %]", *(f"over {rival}" for rival in found.rivals)], gaps),
        "",
        f"{found.rows:,} held-out sentences, the same for every row, through HTTP.",
        f"to {found.last}: share of requests that called it.  cost: CPU ms of models a request.",
        f"P50, P95, P99: ms at the client; {found.clients} clients at a time, on the same machine.",
        f"oracle: the best of {', '.join(found.among)} every time; an upper bound incl. chance.",
        "points: paired differences in accuracy; ~: may be chance, no difference shown.",
        *told,
    ]


def as_data(value: Any) -> Any:
    """Return structs and named tuples as mappings by field name, for JSON."""
    if isinstance(value, msgspec.Struct):
        return {name: as_data(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        return {name: as_data(part) for name, part in value.items()}
    if isinstance(value, tuple):
        names = getattr(value, "_fields", None)
        return as_data(dict(zip(names, value, strict=True))) if names else [as_data(part) for part in value]
    return value


def _cells(line: Line) -> list[str]:
    accuracy, waits = line.accuracy, [f"{wait:.1f}" for wait in line.waits_ms]
    spread = f"{accuracy.mean:.2%} [{accuracy.low * 100:.1f}, {accuracy.high * 100:.1f}]"
    return [line.title, spread, f"{line.share.mean:.1%}", _short(line.cost), *waits]


def _short(cost: float) -> str:
    return f"{cost:.3f}" if cost < 10 else f"{cost:.1f}"


def _gap(found: Difference | None) -> str:
    if found is None:
        return ""
    said = "better" if found.better else "worse" if found.worse else "~"
    return f"{found.mean * 100:+.2f} [{found.low * 100:+.2f}, {found.high * 100:+.2f}] {said:<6}"


def _aligned(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The first column to the left, the others to the right."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    made = []
    for row in (head, *rows):
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        made.append("  ".join(cells).rstrip())
    return [made[0], "-" * len(made[0]), *made[1:]]
