"""The experiment's report: one HTML file."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from rheostat.lab.bootstrap import Interval
from rheostat.lab.contribution import Contribution
from rheostat.lab.experiment.brought import brought as taken_apart
from rheostat.lab.experiment.figures import Arm, Experiment, Fairness
from rheostat.lab.experiment.pictures import Dot, by_group, calls, dots, gaps, histogram, latencies, quality_cost
from rheostat.lab.experiment.words import amount, gap_words
from rheostat.lab.figures import Wait
from rheostat.lab.markup import Content, Safe, bullets, facts, joined, page, picture, table, tag

_COLOURS = {"better": "good", "worse": "bad"}


def write_experiment(
    found: Experiment,
    path: str | os.PathLike[str],
    *,
    title: str = "Experiment",
    brought: Sequence[Contribution] = (),
    command: str = "",
) -> None:
    """Write the report as one self-contained HTML file; it appears whole or not at all.

    Args:
        title: names the data, for people.
        brought: what each model of a policy brought, shown at the end.
        command: how to make this report again.

    Raises:
        OSError: the file cannot be written.
        MissingExtra: matplotlib is not installed.
    """
    target = Path(path)
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        draft.write_text(render(found, title=title, brought=brought, command=command), encoding="utf-8")
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def render(found: Experiment, *, title: str = "Experiment", brought: Sequence[Contribution] = (), command: str = "") -> str:
    """Return the report's HTML; arguments as for `write_experiment`."""
    sections: list[Content] = [
        _head(title, found),
        tag("h2", "What each policy gives"),
        _policies(found),
        _pictures(found),
        tag("h2", "How the models are weighed"),
        _weights(found),
        tag("h2", "Latency and calls"),
        _latency(found),
    ]
    if any(arm.fairness for arm in found.arms):
        sections += [tag("h2", "Are groups served alike?"), _fairness(found)]
    if brought:
        sections += [tag("h2", "What each model brought"), *(taken_apart(one) for one in brought)]
    sections += [
        tag("h2", "What was left out"),
        _left_out(found),
        tag("h2", "Where this comes from"),
        _origin(found, command),
    ]
    return page(title, joined(sections))


def _head(title: str, found: Experiment) -> Safe:
    box = tag(
        "div", joined([tag("strong", found.headline), bullets(found.reasons)]), "verdict" if _won(found) else "verdict no"
    )
    units = f"{found.units:,} values of {found.cluster}, drawn whole" if found.cluster else "each drawn for itself"
    about = f"{found.rows:,} rows of {found.split or 'the table'}, {units}. Decided by: {found.metric}."
    parts: list[Content] = [tag("h1", title), tag("p", about, "soft"), box]
    if found.caution:
        parts += [tag("h3", "Before you believe it"), bullets(tag("span", text, "warn") for text in found.caution)]
    return joined(parts)


def _won(found: Experiment) -> bool:
    return any(arm.versus is not None and arm.versus.said == "better" for arm in found.arms)


def _spread(found: Experiment, value: Interval, metric: str) -> str:
    scale, digits = (100.0, 1) if metric in found.percent else (1.0, 4)
    return f"{amount(found, value.mean, metric)} [{value.low * scale:.{digits}f}, {value.high * scale:.{digits}f}]"


def _waits(wait: Wait) -> str:
    return " / ".join(f"{seconds * 1000:.3g}" for seconds in (wait.p50, wait.p95, wait.p99))


def _policies(found: Experiment) -> Safe:
    others = list(found.arms[0].metrics)[1:]
    against = f"against {found.baseline}"
    head: list[Content] = ["policy", f"{found.metric} [95 %]", against, "verdict", "would be seen", *others, "cost [95 %]"]
    rows: list[list[Content]] = []
    for arm in found.arms:
        said = arm.versus.said if arm.versus is not None else "baseline"
        least = amount(found, arm.versus.detectable, signed=True).lstrip("+") if arm.versus is not None else ""
        rows.append(
            [
                arm.name,
                _spread(found, arm.metric, found.metric),
                gap_words(found, arm) if arm.versus is not None else "",
                tag("span", said, _COLOURS.get(said, "soft")),
                least,
                *(_spread(found, arm.metrics[name], name) for name in others),
                f"{arm.cost.mean:.4g} [{arm.cost.low:.4g}, {arm.cost.high:.4g}]",
            ]
        )
    note = (
        f"All policies on the same rows. Intervals are 95 %, by paired bootstrap; p is two-sided, corrected for the number "
        f"of policies (Holm). “Would be seen” is the least true difference that shows in four of five such experiments. "
        f"{'Lower is better. ' if found.lower_is_better else ''}"
    )
    forms = facts((arm.name, tag("code", arm.form)) for arm in found.arms)
    marked = [at for at, arm in enumerate(found.arms) if arm.versus is not None and arm.versus.said == "better"]
    return joined([table(head, rows, marked=marked), tag("p", note, "soft"), forms])


def _pictures(found: Experiment) -> Safe:
    base = found.arm(found.baseline).metric.mean
    shown = []
    for name in found.arms[0].metrics:
        values = [Dot(arm.name, arm.metrics[name], arm.name == found.baseline) for arm in found.arms]
        line = base if name == found.metric else found.arm(found.baseline).metrics[name].mean
        caption = f"{name} with 95 % intervals; the dashed line is {found.baseline}. Intervals may overlap and the paired " \
                  "difference still be clear."  # fmt: skip
        shown.append(picture(dots(values, name, name in found.percent, line), caption, f"{name} by policy"))
    caption = "Points on the hull can be reached by sending requests to two policies by chance."
    shown.insert(1, picture(quality_cost(found), caption, f"{found.metric} against cost"))
    return tag("div", joined(shown), "grid")


def _weights(found: Experiment) -> Safe:
    head = ["policy", "model", "mean weight", "rows under 0.05", "rows above 0.95", "one model decides alone"]
    rows: list[list[Content]] = []
    for arm in found.arms:
        for at, one in enumerate(arm.weights):
            alone: Content = f"{arm.alone:.1%}" if at == 0 else ""
            if at == 0 and arm.collapsed:
                alone = tag("span", f"{arm.alone:.1%}: collapsed onto {arm.collapsed}", "bad")
            rows.append(
                [arm.name if at == 0 else "", one.model, f"{one.mean:.3f}", f"{one.low:.1%}", f"{one.high:.1%}", alone]
            )
    several = [arm for arm in found.arms if len(arm.weights) > 1]
    shown = tag(
        "div", joined(picture(histogram(arm), _inside(arm), f"weights of {arm.name}") for arm in several), "grid three"
    )
    note = "A policy that picks one model has all its weights at 0 and 1; a continuous one has them in between."
    return joined([shown if several else "", table(head, rows), tag("p", note, "soft")])


def _inside(arm: Arm) -> str:
    return f"{1.0 - arm.alone:.1%} of the requests are answered by more than one model."


def _latency(found: Experiment) -> Safe:
    models = [model for model in found.models if any(model in arm.calls for arm in found.arms)]
    head = ["policy", "mean (ms)", "P50 / P95 / P99 (ms)", *(f"calls of {model}" for model in models)]
    rows: list[list[Content]] = [
        [
            arm.name,
            f"{arm.latency_s.mean * 1000:.3g}",
            _waits(arm.latency_s),
            *(f"{arm.calls.get(m, 0.0):.1%}" for m in models),
        ]
        for arm in found.arms
    ]
    note = "Recorded latencies, added up or overlapped as the policy calls the models."
    drawings = [
        picture(latencies(found.arms), "Median, 95th and 99th percentile.", "latency by policy"),
        picture(calls(found), "A policy that asks several models calls each of them.", "calls by policy"),
    ]
    return joined([table(head, rows), tag("p", note, "soft"), tag("div", joined(drawings), "grid")])


def _fairness(found: Experiment) -> Safe:
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
        "because the largest was looked for. A difference between groups may come from how hard their requests are: compare "
        "policies, not only groups."
    )
    return joined([*parts, tag("p", note, "soft")])


def _groups(found: Experiment, at: int) -> Safe:
    names = [one.group for one in found.arms[0].fairness[at].groups]
    head = ["policy", *names, "largest difference"]
    rows: list[list[Content]] = []
    for arm in found.arms:
        fair = arm.fairness[at]
        cells: list[Content] = [
            _spread(found, one.value, found.metric) if one.value is not None else tag("span", one.why, "soft")
            for one in fair.groups
        ]
        rows.append([arm.name, *cells, _gap(found, fair)])
    sizes: list[Content] = [f"{one.units:,}" for one in found.arms[0].fairness[at].groups]
    rows.append([tag("span", "independent units", "soft"), *sizes, ""])
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


def _left_out(found: Experiment) -> Safe:
    rule = (
        "Rows count on which the right label is known, every model of every policy has a prediction, and every policy "
        "answered; the same rows for all. A failed answer is never counted as right or as wrong."
    )
    if not found.left_out:
        return tag("p", f"Nothing was left out. {rule}")
    rows: list[list[Content]] = [[reason, f"{count:,}"] for reason, count in found.left_out.items()]
    return joined([tag("p", rule), table(["reason", "rows"], rows)])


def _origin(found: Experiment, command: str) -> Safe:
    pairs: list[tuple[Content, Content]] = [
        ("rows", f"{found.rows:,} of {found.split or 'the table'}"),
        ("models", ", ".join(found.models)),
        ("data hash", tag("code", found.data_hash)),
        ("made with", f"rheostat {version('rheostat')}, Python {platform.python_version()}, numpy {version('numpy')}"),
    ]
    if command:
        pairs.append(("command", tag("code", command)))
    return facts(pairs)
