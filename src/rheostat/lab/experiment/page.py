"""The experiment's report: one HTML file."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from rheostat.lab.contribution import Contribution
from rheostat.lab.experiment.alike import alike
from rheostat.lab.experiment.brought import brought as taken_apart
from rheostat.lab.experiment.figures import Arm, Experiment
from rheostat.lab.experiment.pictures import Dot, calls, differences, dots, histogram, latencies, quality_cost
from rheostat.lab.experiment.words import amount, gap_edges, spread
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
        sections += [tag("h2", "Are groups served alike?"), alike(found)]
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
    units = f"resampled by {found.cluster} ({found.units:,} of them)" if found.cluster else "resampled row by row"
    about = f"{found.rows:,} rows of {found.split or 'the table'}, {units}. Decided by: {found.metric}."
    parts: list[Content] = [tag("h1", title), tag("p", about, "soft"), box]
    if found.caution:
        parts += [tag("h3", "Before you believe it"), bullets(tag("span", text, "warn") for text in found.caution)]
    return joined(parts)


def _won(found: Experiment) -> bool:
    return any(arm.versus is not None and arm.versus.said == "better" for arm in found.arms)


def _waits(wait: Wait) -> str:
    return " / ".join(f"{seconds * 1000:.3g}" for seconds in (wait.p50, wait.p95, wait.p99))


def _policies(found: Experiment) -> Safe:
    others = list(found.arms[0].metrics)[1:]
    head: list[Content] = ["policy", f"{found.metric} [95 %]", f"against {found.baseline} [95 %]", "p (Holm)", "verdict",
                           "would be seen", "cost", *others]  # fmt: skip
    rows: list[list[Content]] = []
    for arm in found.arms:
        one = arm.versus
        said = one.said if one is not None else "baseline"
        rows.append(
            [
                arm.name,
                spread(found, arm.metric),
                gap_edges(found, one) if one is not None else "",
                f"{one.p_holm:.3f}" if one is not None else "",
                tag("span", said, _COLOURS.get(said, "soft")),
                amount(found, one.detectable, signed=True).lstrip("+") if one is not None else "",
                f"{arm.cost.mean:.3g}",
                *(spread(found, arm.metrics[name], name) for name in others),
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
    base = found.arm(found.baseline)
    caption = f"Paired difference to {found.baseline} on the same rows, with 95 % intervals (not corrected for the number)."
    shown = [picture(differences(found), caption, f"{found.metric} against {found.baseline}")]
    caption = "Points on the hull can be reached by sending requests to two policies by chance."
    shown.append(picture(quality_cost(found), caption, f"{found.metric} against cost"))
    for name in list(found.arms[0].metrics)[1:]:
        values = [Dot(arm.name, arm.metrics[name], arm.name == found.baseline) for arm in found.arms]
        caption = f"With 95 % intervals; the dashed line is {found.baseline}. Overlap does not mean equal."
        drawing = dots(values, name, name in found.percent, base.metrics[name].mean)
        shown.append(picture(drawing, caption, f"{name} by policy"))
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
