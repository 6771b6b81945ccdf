"""The report's part on whether groups are served alike."""

from __future__ import annotations

from rheostat.lab.experiment.figures import Experiment, Fairness
from rheostat.lab.experiment.pictures import by_group, gaps
from rheostat.lab.experiment.words import amount, spread
from rheostat.lab.markup import Content, Safe, joined, picture, table, tag


def alike(found: Experiment) -> Safe:
    """Return the section: every field's groups under every policy, and how far apart they are."""
    parts: list[Content] = []
    for at, first in enumerate(found.arms[0].fairness):
        parts += [tag("h3", first.field), _groups(found, at)]
        if first.gap is not None:
            drawings = [
                picture(by_group(found, at), "Groups of at least 30 independent units.", f"{found.metric} by {first.field}"),
                picture(gaps(found, at), "Best group minus worst group.", f"largest difference over {first.field}"),
            ]
            parts.append(tag("div", joined(drawings), "grid"))
    note = (
        "Intervals of groups are 95 % each; the interval of the largest difference holds for all pairs of groups at once, "
        "because the largest was looked for. A difference between groups may come from how hard their requests are, so the "
        "last column compares policies: by how much the baseline's largest difference is wider (+) or narrower (-), paired."
    )
    return joined([*parts, tag("p", note, "soft")])


def _groups(found: Experiment, at: int) -> Safe:
    names = [one.group for one in found.arms[0].fairness[at].groups]
    head = ["policy", *names, "largest difference", f"wider than under {found.baseline}"]
    rows: list[list[Content]] = []
    for arm in found.arms:
        fair = arm.fairness[at]
        cells: list[Content] = [
            spread(found, one.value, found.metric) if one.value is not None else tag("span", one.why, "soft")
            for one in fair.groups
        ]
        rows.append([arm.name, *cells, _gap(found, fair), _wider(found, fair)])
    sizes: list[Content] = [f"{one.units:,}" for one in found.arms[0].fairness[at].groups]
    rows.append([tag("span", "independent units", "soft"), *sizes, "", ""])
    return table(head, rows, text=[len(names) + 1])


def _gap(found: Experiment, fair: Fairness) -> str:
    if fair.gap is None:
        return "fewer than two groups are large enough to compare"
    scale = 100.0 if found.metric in found.percent else 1.0
    one = fair.gap
    clear = "clear" if one.low > 0.0 else "not clear: the interval holds 0"
    digits = 1 if scale > 1.0 else 4
    edges = f"[{one.low * scale:.{digits}f}, {one.high * scale:.{digits}f}]"
    return f"{amount(found, one.mean, signed=True).lstrip('+')} {edges} between {one.best} and {one.worst}: {clear}"


def _wider(found: Experiment, fair: Fairness) -> Content:
    if fair.wider is None:
        return ""
    scale, digits = (100.0, 1) if found.metric in found.percent else (1.0, 4)
    one = fair.wider
    text = f"{amount(found, one.mean, signed=True)} [{one.low * scale:+.{digits}f}, {one.high * scale:+.{digits}f}]"
    return tag("span", text, "bad" if one.low > 0.0 else "good" if one.high < 0.0 else "soft")
