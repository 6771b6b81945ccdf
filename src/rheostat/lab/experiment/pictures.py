"""The experiment's pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from unicodedata import east_asian_width

import numpy as np

from rheostat.lab.bootstrap import Interval
from rheostat.lab.experiment.figures import BINS, Arm, Experiment
from rheostat.lab.metrics import hull
from rheostat.lab.plots import COLOURS as FEW
from rheostat.lab.plots import drawn, percent, plain

COLOURS: Final = (*FEW, "#0f766e", "#a16207", "#1d4ed8", "#84171f")
_INK: Final = "#57534e"
_ROW: Final = 0.42  # inches a policy or group takes
_WIDE: Final = 0.06  # inches by which a wide letter is measured short


class Dot(NamedTuple):
    """A named value with its interval; `strong` for the baseline."""

    name: str
    value: Interval
    strong: bool = False


def dots(rows: Sequence[Dot], label: str, in_percent: bool, line: float | None = None, *, points: bool = False) -> str:
    """Draw one value with its interval per row, the first on top, with a dashed line to compare with.

    With `points` the values are differences of percentages, and the axis counts points.
    """

    def draw(axes: Any) -> None:
        places = np.arange(len(rows))[::-1]
        if line is not None:
            axes.axvline(line, color=_INK, lw=1, ls="--", zorder=1)
        for place, row in zip(places, rows, strict=True):
            mean, low, high, _ = row.value
            colour = "#1c1917" if row.strong else COLOURS[0]
            spread = [[max(0.0, mean - low)], [max(0.0, high - mean)]]
            axes.errorbar(mean, place, xerr=spread, fmt="s" if row.strong else "o", color=colour, ms=6, capsize=3, zorder=3)
        _names(axes, [row.name for row in rows])
        axes.set_xlabel(f"{label}, points" if points else label)
        if points:
            axes.xaxis.set_major_formatter(lambda value, _: f"{value * 100:+.3g}" if abs(value) > 1e-9 else "0")
        percent(axes, x=in_percent and not points)

    return drawn(draw, 6.4, 1.0 + _ROW * len(rows))


def _names(axes: Any, names: Sequence[str]) -> None:
    """Name the rows, the first on top, with room for wide letters, which matplotlib's own font lacks and measures short."""
    axes.set_yticks(np.arange(len(names))[::-1], [plain(name) for name in names])
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.grid(axis="y", visible=False)
    wide = max(sum(east_asian_width(letter) in "WF" for letter in plain(name)) for name in names)
    if wide:
        room = min(0.3, wide * _WIDE / axes.figure.get_figwidth())
        axes.figure.get_layout_engine().set(rect=(room, 0.0, 1.0 - room, 1.0))


def quality_cost(found: Experiment) -> str:
    """Draw the decisive metric against cost, with the hull of what mixing policies by chance can reach."""

    def draw(axes: Any) -> None:
        cost = np.array([arm.cost.mean for arm in found.arms])
        quality = np.array([arm.metric.mean for arm in found.arms])
        kept = hull(cost, -quality if found.lower_is_better else quality)
        axes.plot(cost[kept], quality[kept], "--", color=_INK, lw=1.1, label="hull", zorder=2)
        for at, arm in enumerate(found.arms):
            spread = [[max(0.0, arm.metric.mean - arm.metric.low)], [max(0.0, arm.metric.high - arm.metric.mean)]]
            axes.errorbar(
                arm.cost.mean, arm.metric.mean, yerr=spread, capsize=3, ms=7, zorder=3, label=plain(arm.name),
                fmt="s" if arm.name == found.baseline else "o", color=COLOURS[at % len(COLOURS)], alpha=0.9,
            )  # fmt: skip
        axes.margins(0.09, 0.12)
        axes.set_xlabel("mean cost per request")
        axes.set_ylabel(plain(found.metric))
        percent(axes, y=found.metric in found.percent)
        axes.figure.legend(loc="outside lower center", ncols=3)

    return drawn(draw, 6.4, 4.8)


def histogram(arm: Arm) -> str:
    """Draw the share of requests by weight, a colour per model; the weights under 0.05 and above 0.95 are shaded."""

    def draw(axes: Any) -> None:
        edges = np.linspace(0.0, 1.0, BINS + 1)
        axes.axvspan(0.0, 0.05, color="#e7e5e4", zorder=0)
        axes.axvspan(0.95, 1.0, color="#e7e5e4", zorder=0)
        for at, one in enumerate(arm.weights):
            axes.stairs(
                one.histogram, edges, color=COLOURS[at % len(COLOURS)], lw=1.6, label=plain(one.model), baseline=None
            )
        axes.set_xlim(0.0, 1.0)
        axes.set_ylim(bottom=0.0)
        axes.set_title(plain(arm.name), fontsize=10)
        axes.set_xlabel("weight in the answer")
        axes.set_ylabel("share of requests")
        percent(axes, y=True)
        axes.figure.legend(loc="outside lower center", ncols=3)

    return drawn(draw, 4.4, 3.4)


def latencies(arms: Sequence[Arm]) -> str:
    """Draw P50, P95 and P99 of every policy."""

    def draw(axes: Any) -> None:
        places = np.arange(len(arms))[::-1]
        for place, arm in zip(places, arms, strict=True):
            wait = arm.latency_s
            axes.plot([wait.p50 * 1000, wait.p99 * 1000], [place, place], color="#d6d3d1", lw=3, zorder=1)
        for name, mark, colour in (("P50", "o", COLOURS[0]), ("P95", "d", COLOURS[1]), ("P99", "|", "#1c1917")):
            values = [getattr(arm.latency_s, name.lower()) * 1000 for arm in arms]
            axes.plot(
                values, places, mark, color=colour, ms=9 if mark == "|" else 6, mew=2 if mark == "|" else 1, label=name
            )
        _names(axes, [arm.name for arm in arms])
        axes.set_xlim(left=0.0)
        axes.set_xlabel("milliseconds")
        axes.figure.legend(loc="outside lower center", ncols=3)

    return drawn(draw, 6.4, 1.3 + _ROW * len(arms))


def calls(found: Experiment) -> str:
    """Draw which share of the requests calls each model, a bar per model and policy."""
    models = [model for model in found.models if any(model in arm.calls for arm in found.arms)]

    def draw(axes: Any) -> None:
        places = np.arange(len(found.arms))[::-1]
        height = 0.8 / len(models)
        for at, model in enumerate(models):
            shares = [arm.calls.get(model, 0.0) for arm in found.arms]
            offset = ((len(models) - 1) / 2 - at) * height
            axes.barh(places + offset, shares, height * 0.9, color=COLOURS[at % len(COLOURS)], label=plain(model))
        _names(axes, [arm.name for arm in found.arms])
        axes.set_xlabel("share of requests that call it")
        percent(axes, x=True)
        axes.figure.legend(loc="outside lower center", ncols=3)

    return drawn(draw, 6.4, 1.3 + _ROW * len(found.arms))


def by_group(found: Experiment, at: int) -> str:
    """Draw the decisive metric of every policy in every group of one field that is large enough."""
    arms = found.arms
    groups = [one.group for one in arms[0].fairness[at].groups if one.value is not None]

    def draw(axes: Any) -> None:
        places = np.arange(len(groups))[::-1]
        for number, arm in enumerate(arms):
            values = {one.group: one.value for one in arm.fairness[at].groups if one.value is not None}
            shift = ((len(arms) - 1) / 2 - number) * 0.7 / len(arms)
            for place, group in zip(places, groups, strict=True):
                value = values.get(group)
                if value is not None:
                    spread = [[max(0.0, value.mean - value.low)], [max(0.0, value.high - value.mean)]]
                    axes.errorbar(
                        value.mean, place + shift, xerr=spread, fmt="s" if arm.name == found.baseline else "o", ms=4,
                        capsize=2, color=COLOURS[number % len(COLOURS)], label=plain(arm.name) if place == 0 else None,
                    )  # fmt: skip
        _names(axes, groups)
        axes.set_xlabel(plain(found.metric))
        percent(axes, x=found.metric in found.percent)
        axes.figure.legend(loc="outside lower center", ncols=3)

    return drawn(draw, 6.4, 1.3 + (0.25 + 0.13 * len(arms)) * len(groups))


def gaps(found: Experiment, at: int) -> str:
    """Draw every policy's largest difference between groups of one field, with its interval."""
    rows = []
    for arm in found.arms:
        gap = arm.fairness[at].gap
        if gap is not None:
            rows.append(Dot(arm.name, Interval(gap.mean, gap.low, gap.high, 0), arm.name == found.baseline))
    points = found.metric in found.percent
    return dots(rows, f"largest difference in {plain(found.metric)}", points, 0.0, points=points)


def differences(found: Experiment) -> str:
    """Draw every policy's paired difference to the baseline with its interval."""
    rows = [
        Dot(arm.name, Interval(arm.versus.mean, arm.versus.low, arm.versus.high, 0))
        for arm in found.arms
        if arm.versus is not None
    ]
    points = found.metric in found.percent
    return dots(rows, f"{plain(found.metric)} minus that of {plain(found.baseline)}", points, 0.0, points=points)
