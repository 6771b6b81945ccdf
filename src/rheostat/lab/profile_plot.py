"""The latency-quality chart of some profiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rheostat.lab.plots import COLOURS, drawn, percent, plain
from rheostat.pool.profile import Profile


def latency_quality(profiles: Sequence[Profile]) -> str:
    """Draw quality (with its interval) against the latency of one row, from the median to the 95th percentile, as an SVG
    data URI; models without a quality are drawn at the foot.

    Raises:
        MissingExtra: matplotlib is not installed.
    """

    def draw(axes: Any) -> None:
        known = [profile.quality.low for profile in profiles if profile.quality is not None]
        foot = min(known) - 0.02 if known else 0.0
        for number, profile in enumerate(profiles):
            colour = COLOURS[number % len(COLOURS)]
            alone, quality = profile.alone, profile.quality
            y = foot if quality is None else quality.accuracy
            axes.plot([1000 * alone.p50_s, 1000 * alone.p95_s], [y, y], color=colour, lw=1.2, alpha=0.7)
            if quality is not None:
                axes.plot([1000 * alone.p50_s] * 2, [quality.low, quality.high], color=colour, lw=1.2, alpha=0.7)
            axes.plot(1000 * alone.p50_s, y, "o", color=colour, ms=7, mfc=colour if quality is not None else "none")
            told = plain(profile.model) if quality is not None else f"{plain(profile.model)} (quality not measured)"
            axes.annotate(told, (1000 * alone.p50_s, y), xytext=(6, 6), textcoords="offset points", fontsize=9)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_xlabel("latency of one row, median to 95th percentile [ms]")
        axes.set_ylabel("accuracy, 95 % interval")
        axes.margins(x=0.15, y=0.1)
        if known:
            percent(axes, y=True)
        else:
            axes.set_yticks([])

    return drawn(draw, 7.0, 4.2)
