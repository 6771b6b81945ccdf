"""The report's pictures, as SVG data URIs: no file, no request, no script."""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np

from rheostat.errors import MissingExtra
from rheostat.lab.curve import ThresholdCurve
from rheostat.lab.metrics import Floats, hull
from rheostat.lab.reliability import Bin, bins, ece, risk_coverage

COLOURS: Final = ("#0b6e99", "#c2410c", "#4d7c0f", "#7c3aed", "#be185d", "#57534e")
_POINTS: Final = 400  # a line needs no more
_STYLE: Final[Any] = {
    "text.parse_math": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "rheostat",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#d6d3d1",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 9,
}


class Mark(NamedTuple):
    """A point to draw by name: its cost, quality and, where known, the interval of the quality."""

    name: str
    cost: float
    quality: float
    low: float | None = None
    high: float | None = None


class Sureness(NamedTuple):
    """One model's confidences with which of the answers were right."""

    name: str
    confidence: Floats
    correct: Floats


def drawn(draw: Callable[[Any], None], width: float, height: float) -> str:
    """Run `draw` on fresh axes and return the picture as a data URI.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("the report", "report") from None

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        figure.patch.set_alpha(0.0)
        axes = figure.add_subplot()
        axes.patch.set_alpha(0.0)
        draw(axes)
        buffer = io.BytesIO()
        with warnings.catch_warnings():  # the browser brings its own fonts for letters that matplotlib's lacks
            warnings.filterwarnings("ignore", "Glyph .* missing from font")
            figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def plain(text: str) -> str:
    """A name short enough for a picture, without what an SVG cannot hold."""
    clean = "".join(c if c >= " " and not "\ud800" <= c <= "\udfff" else "�" for c in text)
    return clean if len(clean) <= 28 else clean[:27] + "…"


def _some(count: int) -> Any:
    """Indices of at most _POINTS of `count` points, both ends included."""
    return np.unique(np.linspace(0, count - 1, min(count, _POINTS)).astype(int))


def percent(axes: Any, x: bool = False, y: bool = False) -> None:
    from matplotlib.ticker import PercentFormatter

    if x:
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
    if y:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))


def cost_quality(curves: Mapping[str, ThresholdCurve], models: Sequence[Mark], routed: Sequence[Mark]) -> str:
    """Draw quality against cost: every threshold of the curves, the hull, the single models, the routed points."""

    def draw(axes: Any) -> None:
        costs, qualities = [m.cost for m in models], [m.quality for m in models]
        for colour, (name, curve) in zip(COLOURS, curves.items(), strict=False):
            at = _some(len(curve))
            axes.plot(curve.cost[at], curve.quality[at], color=colour, lw=1.6, label=plain(name), zorder=2)
            costs += curve.cost[at].tolist()
            qualities += curve.quality[at].tolist()
        kept = hull(costs, qualities)
        axes.plot(np.array(costs)[kept], np.array(qualities)[kept], "--", color="#57534e", lw=1.1, label="hull", zorder=3)
        for mark in models:
            axes.plot(mark.cost, mark.quality, "s", color="#1c1917", ms=7, zorder=4)
            axes.annotate(
                plain(mark.name), (mark.cost, mark.quality), textcoords="offset points", xytext=(0, -15), ha="center"
            )
        for colour, mark in zip(COLOURS[1:], routed, strict=False):
            spread = None
            if mark.low is not None and mark.high is not None:
                spread = [[max(0.0, mark.quality - mark.low)], [max(0.0, mark.high - mark.quality)]]
            axes.errorbar(mark.cost, mark.quality, spread, fmt="o", color=colour, ms=7, capsize=3, zorder=5,
                          label=f"chosen: {plain(mark.name)}")  # fmt: skip
        axes.margins(0.09, 0.12)
        axes.set_xlabel("mean cost per request")
        axes.set_ylabel("accuracy")
        percent(axes, y=True)
        axes.figure.legend(loc="outside lower center", ncols=3)

    return drawn(draw, 6.4, 4.8)


def share_quality(curve: ThresholdCurve, name: str, budget: float | None) -> str:
    """Draw quality against the share of calls to the last model, with the straight line of sending rows blindly."""

    def draw(axes: Any) -> None:
        at = _some(len(curve))
        axes.plot(curve.share[at], curve.quality[at], color=COLOURS[0], lw=1.8, label=plain(name))
        ends = [float(curve.correct[:, 0].mean()), float(curve.alone.mean())]
        axes.plot([0, 1], ends, "--", color="#57534e", lw=1.1, label="sent blindly")
        if budget is not None:
            axes.axvline(budget, color=COLOURS[1], lw=1, ls=":", label=f"budget {budget:.0%}")
        axes.set_xlabel(f"share of requests that call {plain(curve.stages[-1])}")
        axes.set_ylabel("accuracy")
        percent(axes, x=True, y=True)
        axes.figure.legend(loc="outside lower center", ncols=3)

    return drawn(draw, 6.4, 4.8)


def confidence_error(models: Sequence[Sureness], cuts: Sequence[float]) -> str:
    """Draw the error in each band of confidence, one group of bars per band."""
    edges = [0.0, *cuts, 1.0]
    found: list[list[Bin]] = [bins(m.confidence, m.correct, edges) for m in models]

    def draw(axes: Any) -> None:
        width = 0.8 / max(len(models), 1)
        for index, (model, table) in enumerate(zip(models, found, strict=True)):
            for band, one in enumerate(table):
                label = plain(model.name) if band == 0 else None
                error = 0.0 if not one.rows else 1.0 - one.accuracy
                place = band + (index - (len(models) - 1) / 2) * width
                axes.bar(place, error, width * 0.92, color=COLOURS[index % len(COLOURS)], label=label)
        bands = [f"{low:g}-{high:g}" for low, high in pairwise(edges)]
        axes.set_xticks(range(len(bands)), bands)
        axes.set_xlabel("confidence")
        axes.set_ylabel("share wrong")
        axes.grid(axis="x", visible=False)
        percent(axes, y=True)
        axes.legend()

    return drawn(draw, 5.6, 4.4)


def reliability(models: Sequence[Sureness]) -> str:
    """Draw accuracy against confidence in 15 bins; on the diagonal a confidence means what it says."""

    def draw(axes: Any) -> None:
        axes.plot([0, 1], [0, 1], color="#a8a29e", lw=1)
        for colour, model in zip(COLOURS, models, strict=False):
            table = [b for b in bins(model.confidence, model.correct, np.linspace(0, 1, 16).tolist()) if b.rows]
            sizes = [16 + 160 * b.rows / len(model.correct) for b in table]
            x, y = [b.confidence for b in table], [b.accuracy for b in table]
            error = ece(model.confidence, model.correct)
            axes.plot(x, y, color=colour, lw=1.2, label=f"{plain(model.name)} (ECE {error:.3f})")
            axes.scatter(x, y, sizes, color=colour, alpha=0.75)
        axes.set_xlabel("confidence (bigger dots: more rows)")
        axes.set_ylabel("share right")
        axes.legend(loc="upper left")

    return drawn(draw, 5.6, 4.4)


def risk(models: Sequence[Sureness]) -> str:
    """Draw the error among the rows that are accepted against the share accepted, most confident first."""

    def draw(axes: Any) -> None:
        for colour, model in zip(COLOURS, models, strict=False):
            curve = risk_coverage(model.confidence, model.correct)
            at = _some(len(curve.coverage))
            axes.plot(curve.coverage[at], curve.risk[at], color=colour, lw=1.6, label=plain(model.name))
        axes.set_xlabel("share accepted, most confident first")
        axes.set_ylabel("error among accepted")
        axes.set_ylim(bottom=0)
        percent(axes, x=True, y=True)
        axes.legend(loc="upper left")

    return drawn(draw, 5.6, 4.4)
