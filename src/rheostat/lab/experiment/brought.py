"""The report's part on what each model of a policy brought."""

from __future__ import annotations

from rheostat.lab.contribution import Contribution, Helped
from rheostat.lab.markup import Content, Safe, joined, table, tag

_COLOURS = {"helped": "good", "hurt": "bad"}


def brought(found: Contribution) -> Safe:
    """Return one policy's models with their contributions, and the segments in which it helped."""
    head = ["model", "alone", "brought [95 %]", "policy without it", "mean weight", "only this one right", "fixed", "broken"]
    rows: list[list[Content]] = [
        [
            one.model,
            f"{one.accuracy:.2%}",
            f"{one.shapley.mean * 100:.2f} points [{one.shapley.low * 100:.1f}, {one.shapley.high * 100:.1f}]",
            f"{one.without:.2%}",
            f"{one.weight:.3f}",
            f"{one.only:,}",
            f"{one.fixed:,}",
            f"{one.broke:,}",
        ]
        for one in found.models
    ]
    note = (
        f"{found.rows:,} rows, accuracy {found.accuracy:.2%}; every model right on {found.all_right:,}, none on "
        f"{found.none_right:,}. “Brought” is the Shapley value over all subsets of models that may be up: the points add "
        "up to the accuracy. “Fixed” rows are right under the policy and wrong under this model alone, “broken” the reverse."
    )
    parts: list[Content] = [tag("h3", found.policy), table(head, rows), tag("p", note, "soft")]
    for field, segments in found.where.items():
        parts += [tag("p", f"Against {found.best} alone, by {field}:", "soft"), _where(segments)]
    return joined(parts)


def _where(segments: tuple[Helped, ...]) -> Safe:
    rows: list[list[Content]] = []
    for one in segments:
        gap = (
            f"{one.mean * 100:+.2f} [{one.low * 100:+.2f}, {one.high * 100:+.2f}]" if one.said != "too small to say" else ""
        )
        rows.append([one.segment, f"{one.rows:,}", gap, tag("span", one.said, _COLOURS.get(one.said, "soft"))])
    return table(["segment", "rows", "points gained [95 %]", ""], rows)
