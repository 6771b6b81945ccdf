"""The report: one HTML file that says whether routing pays, and shows everything that answer rests on."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np
from msgspec import Struct

from rheostat.lab.bootstrap import Interval
from rheostat.lab.curve import ThresholdCurve, cascade_curve
from rheostat.lab.figures import Figures, Wait, figures
from rheostat.lab.goal import Goal
from rheostat.lab.markup import Content, Safe, bullets, facts, joined, page, picture, table, tag
from rheostat.lab.outcomes import SPLITS, OutcomesTable
from rheostat.lab.plots import Mark, cost_quality, share_quality
from rheostat.lab.policy_file import policy_form
from rheostat.lab.replay import ReplayResult
from rheostat.lab.report_models import confidences, confusions, members, points
from rheostat.lab.trust import Trust
from rheostat.lab.tune import Tuned, by_cost
from rheostat.lab.verdict import Verdict, verdict


class _Setting(Struct, frozen=True):
    """What all sections draw on."""

    whole: OutcomesTable
    fresh: OutcomesTable
    stages: tuple[str, ...]
    split: str
    tuned: tuple[Tuned, ...]
    played: tuple[ReplayResult, ...]
    found: tuple[Figures, ...]
    trusted: Trust
    said: Verdict


def write_report(
    outcomes: OutcomesTable,
    path: str | os.PathLike[str],
    *,
    title: str = "Routing report",
    stages: Sequence[str] | None = None,
    goal: Goal | None = None,
    tuned: Sequence[Tuned] = (),
    split: str = "test",
    command: str = "",
    seed: int = 0,
) -> Verdict:
    """Write the report as one self-contained HTML file; return its verdict.

    Args:
        outcomes: a table with rows in dev and in `split`.
        title: names the data, for people.
        stages: models, cheapest first; by default all by cost.
        goal: what the policies in the verdict keep; at most 20 % calls of the last model by default.
        tuned: policies tuned already, shown besides those the verdict tunes itself.
        split: the fresh rows that figures are measured on.
        command: how to make this report again.

    Raises:
        GoalError, ValueError: as `tune`.
        OSError: the file cannot be written.
    """
    text, said = render(
        outcomes, title=title, stages=stages, goal=goal, tuned=tuned, split=split, command=command, seed=seed
    )
    target = Path(path)
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return said


def render(
    outcomes: OutcomesTable,
    *,
    title: str = "Routing report",
    stages: Sequence[str] | None = None,
    goal: Goal | None = None,
    tuned: Sequence[Tuned] = (),
    split: str = "test",
    command: str = "",
    seed: int = 0,
) -> tuple[str, Verdict]:
    """Return the report's HTML and its verdict; arguments as for `write_report`."""
    names = tuple(stages) if stages is not None else by_cost(outcomes)
    said = verdict(outcomes, stages=names, goal=goal, seed=seed)
    fresh = outcomes.select(split=split)
    shown = _distinct([*tuned, *said.tuned])
    pairs = [figures(one.policy, fresh, names, split=split, seed=seed) for one in shown]
    setting = _Setting(
        whole=outcomes,
        fresh=fresh,
        stages=names,
        split=split,
        tuned=shown,
        played=tuple(played for _, played in pairs),
        found=tuple(found for found, _ in pairs),
        trusted=said.trust,
        said=said,
    )
    sections = [
        _head(title, setting),
        tag("h2", f"What each choice gives on {split}"),
        _rivals(setting),
        _curves(setting),
        tag("h2", "The models"),
        members(setting.trusted),
        tag("h2", "Can their confidence be trusted?"),
        confidences(fresh, names),
        tag("h2", "What is mistaken for what"),
        *(confusions(fresh, name) for name in names),
        tag("h2", "Latency by path"),
        _paths(setting),
        tag("h2", "What was left out, and how it counts"),
        _left_out(setting),
        tag("h2", "Where this comes from"),
        _origin(setting, command),
    ]
    return page(title, joined(sections)), said


def _distinct(found: Sequence[Tuned]) -> tuple[Tuned, ...]:
    """Policies shown once each, in order."""
    kept: dict[str, Tuned] = {}
    for one in found:
        kept.setdefault(policy_form(one.policy), one)
    return tuple(kept.values())


def _head(title: str, setting: _Setting) -> Safe:
    said = setting.said
    lines: list[Content] = [tag("strong", said.headline), bullets([*said.reasons, said.blending])]
    box = tag("div", joined(lines), "verdict" if said.pays else "verdict no")
    parts: list[Content] = [tag("h1", title), tag("p", f"Goal: {said.tuned[0].goal.words()}.", "soft"), box]
    if said.caution:
        parts += [tag("h3", "Before you believe it"), bullets(tag("span", text, "warn") for text in said.caution)]
    told = dict.fromkeys(f"{one.kind}: {note}" for one in setting.tuned for note in one.notes)
    if told:
        parts += [tag("h3", "To note"), bullets(told)]
    return joined(parts)


# ------------------------------------------------------------------------------------------------------ the rivals


def _spread(found: Interval) -> str:
    return f"{found.mean:.2%} [{found.low * 100:.1f}, {found.high * 100:.1f}]"


def _waits(wait: Wait) -> str:
    return " / ".join(f"{seconds * 1000:.3g}" for seconds in (wait.p50, wait.p95, wait.p99))


def _rivals(setting: _Setting) -> Safe:
    first, last = setting.stages[0], setting.stages[-1]
    chosen = setting.tuned[0].chosen.split
    head = ["choice", "accuracy [95 %]", f"points over {first}", f"points over {last}", f"calls of {last} ({chosen})",
            "same share sent blindly", "cost", "P50 / P95 / P99", "rows used / left out"]  # fmt: skip
    base = setting.found[0]
    left = f"{base.n} / {sum(base.left_out.values()) + base.unanswered + base.reviewed}"
    gap = base.last_vs_first
    rows: list[list[Content]] = []
    for alone in base.alone:
        over: Content = points(gap) if alone.model == last else ""
        share = "100 %" if alone.model == last else "0 %"
        rows.append([f"all {alone.model}", _spread(alone.quality), over, "", share, "", f"{alone.cost:.4g}",
                     _waits(alone.latency_s), left])  # fmt: skip
    bound = Safe("oracle<br><small>upper bound incl. chance</small>")
    rows.append([bound, f"{base.oracle:.2%}", "", "", "", "", f"{base.oracle_cost:.4g}", "", left])
    marked = []
    for one, found in zip(setting.tuned, setting.found, strict=True):
        marked.append(len(rows))
        share = f"{found.share.mean:.1%} ({one.chosen.share.mean:.1%})"
        used = f"{found.n} / {sum(found.left_out.values()) + found.unanswered + found.reviewed}"
        rows.append([one.kind, _spread(found.quality), points(found.vs_first), points(found.vs_last), share,
                     f"{found.random:.2%}", f"{found.cost.mean:.4g}", _waits(found.latency_s), used])  # fmt: skip
    forms = facts((one.kind, tag("code", policy_form(one.policy))) for one in setting.tuned)
    note = (
        f"Intervals are 95 %, by paired bootstrap over rows. Thresholds and weights were chosen on {chosen}, all else is "
        f"measured on {setting.split}; the share in brackets is that on {chosen}. Latency in milliseconds."
    )
    return joined([table(head, rows, marked=marked), tag("p", note, "soft"), forms])


def _curves(setting: _Setting) -> Safe:
    curves: dict[str, ThresholdCurve] = {"cascade": cascade_curve(setting.fresh, setting.stages)}
    blend = max((getattr(one.policy, "blend", 0.0) for one in setting.tuned), default=0.0)
    if blend:
        curves[f"cascade, blend {blend:g}"] = cascade_curve(setting.fresh, setting.stages, blend=blend)
    base = setting.found[0]
    models = [Mark(alone.model, alone.cost, alone.quality.mean) for alone in base.alone]
    routed = [
        Mark(one.kind, found.cost.mean, found.quality.mean, found.quality.low, found.quality.high)
        for one, found in zip(setting.tuned, setting.found, strict=True)
    ]
    goal = setting.said.tuned[0].goal
    return tag(
        "div",
        joined(
            [
                picture(
                    cost_quality(curves, models, routed),
                    f"Every threshold on {setting.split}, {base.n} rows. Points on the hull can be reached by mixing two "
                    "settings by chance.",
                    "accuracy against mean cost",
                ),
                picture(
                    share_quality(curves["cascade"], "cascade", goal.max_share),
                    "Above the dashed line the confidence knows which requests to pass on.",
                    "accuracy against share of large calls",
                ),
            ]
        ),
        "grid",
    )


def _paths(setting: _Setting) -> Safe:
    head = ["policy", "models called", "requests", "accuracy", "mean", "P50 / P95 / P99"]
    rows: list[list[Content]] = []
    for one, played in zip(setting.tuned, setting.played, strict=True):
        codes = played.called @ (1 << np.arange(played.called.shape[1]))
        for code in np.unique(codes):
            mask = (codes == code) & played.judged
            if not mask.any():
                continue
            path = " + ".join(m for index, m in enumerate(played.table.models) if code >> index & 1) or "none"
            wait = Wait.of(played.latency_s[mask])
            share = f"{mask.sum() / len(mask):.1%}"
            rows.append(
                [one.kind, path, share, f"{played.correct[mask].mean():.2%}", f"{wait.mean * 1000:.3g} ms", _waits(wait)]
            )
    note = "Recorded latencies, added up or overlapped as the policy calls the models; quantiles in milliseconds."
    return joined([table(head, rows), tag("p", note, "soft")])


def _left_out(setting: _Setting) -> Safe:
    rows: list[list[Content]] = []
    for split in SPLITS:
        part = setting.whole.select(split=split)
        for reason, count in part.left_out(setting.stages).items():
            rows.append([split, reason, str(count), f"{count / len(part):.2%}"])
    rule = (
        "A comparison uses only rows whose right label is known and on which every compared model has a prediction, the "
        "same rows for all. A failed or missing answer is never counted as right or as wrong."
    )
    if not rows:
        return tag("p", f"Nothing was left out. {rule}")
    return joined([tag("p", rule), table(["split", "reason", "rows", "of the split"], rows)])


def _origin(setting: _Setting, command: str) -> Safe:
    whole = setting.whole
    sizes = ", ".join(f"{name} {int((whole.split == code).sum())}" for code, name in enumerate(SPLITS))
    pairs: list[tuple[Content, Content]] = [
        ("rows", f"{len(whole)} ({sizes})"),
        ("labels", str(len(whole.labels))),
        ("data hash", tag("code", whole.data_hash)),
    ]
    for source in whole.sources:
        pairs.append((f"file ({source.split})", joined([source.name, tag("code", source.hash)], " ")))
    pairs += [("models", ", ".join(f"{name} {whole.model_info[name].version}" for name in setting.stages))]
    made = f"rheostat {version('rheostat')}, Python {platform.python_version()}, numpy {version('numpy')}"
    pairs.append(("made with", made))
    if command:
        pairs.append(("command", tag("code", command)))
    return facts(pairs)
