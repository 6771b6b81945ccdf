"""What happened, as a picture: who answered, and where ramps and breakers stood."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from bench.outage_load import Sample

BIN_S = 0.5


def plot(
    path: Path,
    samples: list[Sample],
    seen: list[tuple[float, dict[str, float]]],
    phases: list[tuple[float, float, str]],
    models: tuple[str, ...],
) -> None:
    """Write a PNG: the share of answers by model, each model's ramp and breaker; what was done is shaded."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1 + len(models), 1, sharex=True, figsize=(14, 3 + 1.6 * len(models)))
    bins = [Counter[str]() for _ in range(1 + int(samples[-1].due / BIN_S))]
    for sample in samples:
        bins[int(sample.due / BIN_S)][sample.model] += 1
    times = [index * BIN_S for index in range(len(bins))]
    shares = [[found[model] / max(1, found.total()) for found in bins] for model in (*models, "none")]
    axes[0].stackplot(times, shares, labels=[*models, "no answer"], colors=["#4477aa", "#66ccee", "#ccbb44", "#ee6677"])
    axes[0].set_ylabel("share of answers")
    axes[0].legend(loc="upper right", ncols=4, fontsize=8)
    moments = [moment for moment, _ in seen]
    for axis, model in zip(axes[1:], models, strict=True):
        axis.step(moments, [found.get(f"ramp {model}", 0.0) for _, found in seen], where="post", label="ramp")
        states = [found.get(f"breaker_state {model}", 0.0) / 2 for _, found in seen]
        axis.step(moments, states, where="post", label="breaker: 0 closed, .5 half-open, 1 open", color="#ee6677", lw=0.8)
        axis.set_ylabel(model)
        axis.set_ylim(-0.05, 1.1)
    axes[1].legend(loc="lower right", fontsize=8)
    for begin, end, what in phases:
        for axis in axes:
            axis.axvspan(begin, end, color="black", alpha=0.12)
        axes[0].text(begin, 1.02, what, fontsize=7, rotation=20)
    axes[-1].set_xlabel("seconds")
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110, bbox_inches="tight")
    pyplot.close(figure)
