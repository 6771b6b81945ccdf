"""The verdict of an experiment in words."""

from __future__ import annotations

from collections.abc import Sequence

from rheostat.lab.bootstrap import Interval
from rheostat.lab.experiment.figures import HIGH, Arm, Comparison, Experiment
from rheostat.lab.segments import FEWEST


def amount(found: Experiment, value: float, metric: str = "", *, signed: bool = False) -> str:
    """Write a metric's value, or with `signed` a difference of two of its values."""
    percent = (metric or found.metric) in found.percent
    if signed:
        return f"{value * 100:+.2f} points" if percent else f"{value:+.4f}"
    return f"{value:.2%}" if percent else f"{value:.4f}"


def spread(found: Experiment, value: Interval, metric: str = "") -> str:
    """Write a metric's value with its interval."""
    scale, digits = (100.0, 1) if (metric or found.metric) in found.percent else (1.0, 4)
    return f"{amount(found, value.mean, metric)} [{value.low * scale:.{digits}f}, {value.high * scale:.{digits}f}]"


def gap_edges(found: Experiment, one: Comparison) -> str:
    """Write a difference to the baseline with its interval."""
    scale, digits = (100.0, 2) if found.metric in found.percent else (1.0, 4)
    edges = f"[{one.low * scale:+.{digits}f}, {one.high * scale:+.{digits}f}]"
    return f"{amount(found, one.mean, signed=True)} {edges}"


def gap_words(found: Experiment, arm: Arm) -> str:
    """Write a policy's difference to the baseline with its interval and p-value."""
    if arm.versus is None:
        return "the baseline"
    return f"{gap_edges(found, arm.versus)}, Holm p {arm.versus.p_holm:.3f}"


def headline(found: Experiment) -> str:
    """Say which policy to take by the decisive metric, or that none is shown to differ."""
    better = [arm for arm in found.arms if arm.versus is not None and arm.versus.said == "better"]
    worse = [arm.name for arm in found.arms if arm.versus is not None and arm.versus.said == "worse"]
    if better:
        sign = -1.0 if found.lower_is_better else 1.0
        best = max(better, key=lambda arm: sign * arm.metric.mean)
        others = [arm.name for arm in better if arm is not best]
        also = f" So {'does' if len(others) == 1 else 'do'} {_listed(others)}." if others else ""
        return f"{best.name} beats {found.baseline} on {found.metric}: {gap_words(found, best)}.{also}"
    least = min(arm.versus.detectable for arm in found.arms if arm.versus is not None)
    most = max(arm.versus.detectable for arm in found.arms if arm.versus is not None)
    seen = amount(found, least, signed=True).lstrip("+")
    span = seen if least == most else f"{seen} to {amount(found, most, signed=True).lstrip('+')}"
    if worse:
        return (
            f"No policy is shown to beat {found.baseline} on {found.metric}; {_listed(worse)} "
            f"{'is' if len(worse) == 1 else 'are'} worse."
        )
    return (
        f"No policy is shown to differ from {found.baseline} on {found.metric}. A difference must be {span} to be seen in "
        f"four of five such experiments; smaller ones may be there."
    )


def reasons(found: Experiment) -> tuple[str, ...]:
    """One sentence per policy, then what is cheaper at no shown loss."""
    base = found.arm(found.baseline)
    told = [f"{base.name}: {amount(found, base.metric.mean)}, cost {base.cost.mean:.4g}"]
    for arm in found.arms:
        if arm.versus is None:
            continue
        line = f"{arm.name}: {amount(found, arm.metric.mean)}, {gap_words(found, arm)}: {arm.versus.said}"
        if arm.versus.said == "no difference shown":
            line += f" (a difference of {amount(found, arm.versus.detectable, signed=True).lstrip('+')} would be seen)"
        if arm.versus.said != "worse" and arm.cost.mean < base.cost.mean:
            line += f"; it costs {1.0 - arm.cost.mean / base.cost.mean:.0%} less"
        told.append(line)
    told += [_alike(found, at) for at in range(len(base.fairness))]
    return tuple(told)


def _alike(found: Experiment, at: int) -> str:
    """One sentence on the groups of one field: how far apart under the baseline, and who brings them closer or further."""
    base = found.arm(found.baseline).fairness[at]
    if base.gap is None:
        return f"groups of {base.field} cannot be compared: fewer than two are large enough"
    gap = amount(found, base.gap.mean, signed=True).lstrip("+")
    clear = "" if base.gap.low > 0.0 else ", which may be chance"
    line = f"groups of {base.field} lie {gap} apart under {found.baseline} ({base.gap.best} over {base.gap.worst}){clear}"
    moved = [(arm.name, arm.fairness[at].wider) for arm in found.arms]
    for word, sign in (("further apart", 1.0), ("closer", -1.0)):
        names = [name for name, wider in moved if wider is not None and min(sign * wider.low, sign * wider.high) > 0.0]
        line += f"; {word} under {_listed(names)}" if names else ""
    return line if ";" in line else f"{line}; no other policy is shown to change that"


def caution(found: Experiment, splits: Sequence[str]) -> tuple[str, ...]:
    """What a reader must know before believing the figures."""
    told: list[str] = []
    seen = [split for split in splits if split != "test"]
    if seen:
        told.append(f"rows of {' and '.join(seen)} are among these: models or thresholds may have been chosen on them")
    if found.units < FEWEST:
        told.append(f"only {found.units} independent units: the intervals are too narrow with so few")
    left = sum(found.left_out.values())
    if left > 0.05 * (left + found.rows):
        told.append(f"{left:,} of {left + found.rows:,} rows are left out: the rest may be the easier ones")
    if len(found.arms[0].metrics) > 1:
        told.append(f"the verdict rests on {found.metric} alone; the other metrics are shown, not tested")
    for arm in found.arms:
        if arm.collapsed:
            told.append(f"{arm.name} has collapsed: {arm.collapsed} has over {HIGH:.0%} of the weight on (nearly) every row")
        if arm.unanswered:
            told.append(f"{arm.name} left {arm.unanswered:,} rows unanswered; they are left out for all policies")
        told += [f"{arm.name}: {note}" for note in arm.notes]
    return tuple(told)


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
