"""After a model changed: what moves before traffic does, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import numpy as np
from msgspec import Struct

from rheostat.errors import RheostatError
from rheostat.lab.bootstrap import Difference, Interval, bootstrap, paired_bootstrap
from rheostat.lab.figures import figures
from rheostat.lab.goal import Goal, GoalError
from rheostat.lab.outcomes import OutcomesTable
from rheostat.lab.reliability import ece
from rheostat.lab.replay import ReplayResult, replay
from rheostat.lab.traps import traps
from rheostat.lab.tune import Tuned, by_cost, choose_policy, notes
from rheostat.lab.verdict import WORTH
from rheostat.policies import Blend, Cascade, Delegate, Policy, models_of, signals_of
from rheostat.signals.base import AnswerScorer, Scorer

SHARE_MOVES: Final = 0.02
"""A share of calls that moves by less, in [0, 1], is not spoken of."""


class RetuneError(RheostatError):
    """The two tables cannot be compared; the message says why."""

    type = "retune_error"


class Move(Struct, frozen=True):
    """One figure of the policy in service on the same rows, with the old and with the new models; `change` is paired."""

    before: Interval
    after: Interval
    change: Difference


class ModelMove(Struct, frozen=True, kw_only=True):
    """One model, old and new. `ece` is its expected calibration error in [0, 1], NaN without confidences."""

    model: str
    versions: tuple[str, str]
    accuracy: Move
    confidence: tuple[float, float]
    ece: tuple[float, float]
    same_labels: float


class Retuned(Struct, frozen=True, kw_only=True):
    """What moved and what to do.

    `act` is `keep`, `retune` or `hold back` (see `retune`). `share` is that of the last model's calls. `proposed` is the
    setting that tuning would choose now, None when this kind of policy is not tuned or no setting keeps the goal; `gain`
    and `saving` compare it with the policy in service on the new test rows: quality, and cost saved, in the pool's unit.
    """

    act: Literal["keep", "retune", "hold back"]
    headline: str
    reasons: tuple[str, ...]
    rows: int
    stages: tuple[str, ...]
    goal: Goal
    current: Policy
    quality: Move
    share: Move
    cost: Move
    models: tuple[ModelMove, ...]
    proposed: Tuned | None = None
    gain: Difference | None = None
    saving: Difference | None = None
    still_below: Difference | None = None


def retune(
    policy: Policy,
    before: OutcomesTable,
    after: OutcomesTable,
    *,
    goal: Goal | None = None,
    scorers: Sequence[Scorer | AnswerScorer] = (),
) -> Retuned:
    """Replay the policy in service over the outcomes of the old and the new models, tune it anew, and say what to do.

    The new setting is chosen on the new dev rows; everything told is of the same test rows, old and new, paired by id.
    `hold back`: quality falls by a paired 95 % interval, and with the new setting it is still below. `retune`: the new
    setting is better by a paired interval, or clearly cheaper and not worse, or the old one breaks the goal and the new
    one keeps it. Otherwise `keep`.

    Args:
        goal: what tuning has to keep; by default the share of calls that the policy had on the old dev rows.
        scorers: the signals that the policy reads.

    Raises:
        RetuneError: no common rows, different right labels, a model that one table lacks or whose labels are others.
    """
    names = models_of(policy)
    if moving := [name for name in signals_of(policy) if name.startswith("spend.")]:
        raise RetuneError(f"the policy's threshold is moved by a budget ({moving[0]}), so there is none to tune")
    for table, word in ((before, "old"), (after, "new")):
        if missing := [name for name in names if name not in table.models]:
            raise RetuneError(f"the {word} table has no model {missing[0]!r}, which the policy asks; it has: "
                              f"{', '.join(table.models)}")  # fmt: skip
        strange = [flag for flag in traps(table, names, thresholds=False) if flag.kind == "label mismatch"]
        if strange:
            raise RetuneError(f"{strange[0].about} in the {word} table: {strange[0].text}")
    stages = _stages(policy, after)
    old, new = _paired(before, after, stages)
    last = stages[-1]
    plays = [
        _judged(replay(policy, part, scorers=scorers), last) for part in (old.select(split="test"), new.select(split="test"))
    ]
    both = plays[0][0] & plays[1][0]
    if not both.any():
        raise RetuneError("the policy answers no common test row in both tables; evaluate both over the same labelled rows")
    (quality, share, cost) = (_move(plays[0][at][both], plays[1][at][both]) for at in (1, 2, 3))
    wanted = goal or Goal(max_share=float(_judged(replay(policy, old.select(split="dev"), scorers=scorers), last)[2].mean()),
                          sure=False)  # fmt: skip
    proposed = _propose(policy, new, stages, wanted)
    gain = saving = below = None
    if proposed is not None:
        fresh = _judged(replay(proposed.policy, new.select(split="test")), last)
        rows = both & fresh[0]
        gain = paired_bootstrap(fresh[1][rows], plays[1][1][rows])
        saving = paired_bootstrap(plays[1][3][rows], fresh[3][rows])
        below = paired_bootstrap(fresh[1][rows], plays[0][1][rows])
    act, reasons = _act(wanted, quality, share, cost, proposed, gain, saving, below)
    return Retuned(
        act=act, headline=_headline(act, quality, share, last), reasons=tuple(reasons), rows=int(both.sum()), stages=stages,
        goal=wanted, current=policy, quality=quality, share=share, cost=cost, proposed=proposed, gain=gain, saving=saving,
        still_below=below, models=tuple(_model(old.select(split="test"), new.select(split="test"), name) for name in stages),
    )  # fmt: skip


def _stages(policy: Policy, table: OutcomesTable) -> tuple[str, ...]:
    if isinstance(policy, Cascade):
        return policy.stages
    if isinstance(policy, Delegate):
        return (policy.weak, policy.strong)
    asked = models_of(policy)
    return tuple(name for name in by_cost(table) if name in asked)


def _kind(policy: Policy) -> str | None:
    if isinstance(policy, Cascade):
        return None if policy.confidence else "cascade+blend" if policy.blend else "cascade"
    if isinstance(policy, Delegate):
        return None if policy.weight else "delegate"
    return "blend" if isinstance(policy, Blend) and not policy.signal else None


def _paired(before: OutcomesTable, after: OutcomesTable, names: Sequence[str]) -> tuple[OutcomesTable, OutcomesTable]:
    """The rows that stand in both tables and count in both, in the same order."""
    place = {each: row for row, each in enumerate(after.ids)}
    rows = [(row, place[each]) for row, each in enumerate(before.ids) if each in place]
    if not rows:
        raise RetuneError("the tables have no row id in common; evaluate old and new models over the same labelled rows")
    at = np.array(rows)
    old, new = before.subset(at[:, 0]), after.subset(at[:, 1])
    known = old.known & new.known
    left, right = np.array(old.labels)[old.truth[known]], np.array(new.labels)[new.truth[known]]
    if (left != right).any():
        count = int((left != right).sum())
        raise RetuneError(f"{count} rows have another right label in the new table; compare models over the same labels")
    if (old.split != new.split).any():
        raise RetuneError("some rows stand in another split in the new table; evaluate both with the same splits")
    fine = old.complete(names) & new.complete(names)
    return old.subset(fine), new.subset(fine)


def _judged(played: ReplayResult, last: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    called = played.called[:, played.table.models.index(last)].astype(np.float64)
    return played.judged, played.correct.astype(np.float64), called, played.cost


def _move(before: np.ndarray, after: np.ndarray) -> Move:
    return Move(bootstrap(before), bootstrap(after), paired_bootstrap(after, before))


def _model(old: OutcomesTable, new: OutcomesTable, name: str) -> ModelMove:
    parts = [(part.model(name).confidence, part.correct(name).astype(np.float64)) for part in (old, new)]
    seen = [np.isfinite(confidence) for confidence, _ in parts]
    means = [float(c[mask].mean()) if mask.any() else float("nan") for (c, _), mask in zip(parts, seen, strict=True)]
    errors = [ece(c[mask], y[mask]) if mask.any() else float("nan") for (c, y), mask in zip(parts, seen, strict=True)]
    said = [np.array(part.labels, dtype=object)[part.model(name).label] for part in (old, new)]
    return ModelMove(
        model=name,
        versions=(old.model_info[name].version, new.model_info[name].version),
        accuracy=_move(parts[0][1], parts[1][1]),
        confidence=(means[0], means[1]),
        ece=(errors[0], errors[1]),
        same_labels=float((said[0] == said[1]).mean()),
    )


def _propose(policy: Policy, new: OutcomesTable, stages: tuple[str, ...], goal: Goal) -> Tuned | None:
    kind = _kind(policy)
    dev, test = new.select(split="dev"), new.select(split="test")
    if kind is None or not len(dev):
        return None
    try:
        found = choose_policy(dev, goal, stages, kind, "dev")
    except (GoalError, ValueError):
        return None
    chosen, reported = figures(found, dev, stages, split="dev")[0], figures(found, test, stages, split="test")[0]
    return Tuned(kind=kind, stages=stages, goal=goal, policy=found, chosen=chosen, reported=reported,
                 notes=tuple(notes(goal, chosen, reported, kind)))  # fmt: skip


def _act(
    goal: Goal,
    quality: Move,
    share: Move,
    cost: Move,
    proposed: Tuned | None,
    gain: Difference | None,
    saving: Difference | None,
    below: Difference | None,
) -> tuple[Literal["keep", "retune", "hold back"], list[str]]:
    told = []
    if quality.change.better or quality.change.worse:
        told.append(f"quality moves by {_points(quality.change)}")
    if abs(share.change.mean) >= SHARE_MOVES and (share.change.better or share.change.worse):
        told.append(f"the share of calls of the last model moves by {_points(share.change)}")
    unit = max(cost.before.mean, 1e-300)
    if abs(cost.change.mean) >= WORTH * unit and (cost.change.better or cost.change.worse):
        told.append(
            f"cost moves by {cost.change.mean / unit:+.1%} [{cost.change.low / unit:+.1%}, {cost.change.high / unit:+.1%}]"
        )
    broken = goal.max_share is not None and share.after.low > goal.max_share
    broken |= goal.min_quality is not None and quality.after.high < goal.min_quality
    if broken:
        told.append(f"the goal is broken with the setting in service: {goal.words()}")
    if quality.change.worse and (below is None or below.worse):
        told.append(
            "no new setting wins the quality back" if below is not None else "there is no new setting to win it back"
        )
        return "hold back", told
    if proposed is None or gain is None or saving is None:
        return "keep", [*told, "no new setting is proposed: this kind is not tuned, or none keeps the goal"]
    reported = proposed.reported
    kept = (goal.max_share is None or reported.share.low <= goal.max_share) and (
        goal.min_quality is None or reported.quality.high >= goal.min_quality
    )
    cheaper = saving.better and saving.mean > WORTH * max(cost.after.mean, 1e-300) and not gain.worse
    if gain.better or cheaper or (broken and kept):
        told.append(f"the new setting against the one in service: {_points(gain)}, cost {-saving.mean:+.4g} a request")
        return "retune", told
    return "keep", [*told, f"the new setting shows nothing to win: {_points(gain)}"]


def _headline(act: str, quality: Move, share: Move, last: str) -> str:
    words = {
        "keep": "Keep the setting",
        "retune": "Take the new setting before traffic moves",
        "hold back": "Hold the new model back",
    }
    return (
        f"{words[act]}: quality {quality.before.mean:.2%} -> {quality.after.mean:.2%}, "
        f"calls of {last} {share.before.mean:.1%} -> {share.after.mean:.1%}."
    )


def _points(gap: Difference) -> str:
    return f"{gap.mean * 100:+.2f} points [{gap.low * 100:+.2f}, {gap.high * 100:+.2f}]"
