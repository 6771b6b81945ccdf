"""Weights per request from an outcomes table: fitted, held against the plain ways, and written as a learned file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
from msgspec import Struct

from rheostat.lab.learned_file import write_learned
from rheostat.lab.metrics import Floats
from rheostat.lab.outcomes import Bools, Ints, OutcomesTable
from rheostat.lab.segments import coded, meta_values
from rheostat.lab.trust import groups
from rheostat.lab.weights.calibration import calibrated_for
from rheostat.lab.weights.fusion import FusionData
from rheostat.lab.weights.predictor import Recipe, WeightNet, extremes, require_torch, train_weights
from rheostat.lab.weights.rivals import Rivals, rivals
from rheostat.lab.weights.rows import (
    answer_features,
    as_it_was,
    distributions,
    fusion_data,
    line_of,
    past_of,
    read_rows,
)
from rheostat.signals.answer_line import Past
from rheostat.signals.answers import PAST_KEY
from rheostat.signals.calibrator import Fitted
from rheostat.signals.learned import LearnedCard

Tell = Callable[[str], None]

BY_HEART: Final = 0.05
"""Accuracy on the rows that weights are fitted on, above that on the rows that stop them: the models knew those rows."""
COLLAPSED: Final = 0.9
FEWEST: Final = 100


class Ask(Struct, frozen=True, kw_only=True):
    """What weights are to be learned from.

    Args:
        models: two or more, cheapest first.
        features: numbers read of the request (see `FeatureLine`), besides those of answers.
        answers: whose answers the weights may read: `all`, the `first` model's, or `none`.
        past: meta fields by which the models' earlier losses are remembered.
        when: the meta field that orders rows in time, for `past`; empty: the table's order.
        cluster: the meta field whose rows are drawn together in intervals; empty: every row for itself.
        fit, stop, report: splits; with `fit` and `stop` the same, it is halved, equal inputs (or clusters) together.
        calibrate: fit a calibrator for each model that has none, before the scores are mixed, where it helps on `stop` too.
    """

    models: tuple[str, ...]
    features: tuple[str, ...] = ()
    answers: str = "all"
    past: tuple[str, ...] = ()
    when: str = ""
    cluster: str = ""
    fit: str = "train"
    stop: str = "dev"
    report: str = "test"
    calibrate: bool = True
    recipe: Recipe = Recipe()


@dataclass(frozen=True)
class LearnedWeights:
    """Trained weights with all that serving them needs, and their figures on fresh rows.

    `calibrators` holds those that were fitted here; the models must be given them, else other scores are mixed than were
    weighed. `stopped` and `judged` are the rows of those splits with calibrated answers, `data` what weights were fitted,
    stopped and judged on, `plain` the models' scores there before they were calibrated for the mix, `weights` those of the
    report's rows. `top` is the mean of the largest weight, `alone` the share
    of rows on which it is 0.98 or more.
    """

    ask: Ask
    net: WeightNet
    past: Mapping[str, Past]
    calibrators: Mapping[str, Fitted]
    table: OutcomesTable
    rows: int
    stopped: OutcomesTable
    judged: OutcomesTable
    data: tuple[FusionData, FusionData, FusionData]
    plain: tuple[Floats, Floats, Floats]
    report: Rivals
    weights: Floats
    top: float
    alone: float
    notes: tuple[str, ...]

    @property
    def pays(self) -> bool:
        """True when the log loss is below that of every plain way, by paired intervals."""
        return all(difference.better for difference in self.report.gains.values())

    def write(self, path: str | os.PathLike[str]) -> LearnedCard:
        """Write the learned file that the scorer `answers` serves; one output a model.

        Raises:
            OSError: it cannot be written.
        """
        card = LearnedCard(
            meaning="weights",
            features=self.net.features,
            outputs=self.net.models,
            data_hash=self.table.data_hash,
            rows=self.rows,
            fitted_on=self.ask.fit,
            notes=self.notes,
        )
        return write_learned(self.net.to_onnx(), card, path, {PAST_KEY: msgspec.json.encode(self.past).decode()})


def learn_weights(table: OutcomesTable, ask: Ask, tell: Tell = lambda _: None) -> LearnedWeights:
    """Learn weights on the simplex, end to end through the mix of scores, on the right labels.

    Fitted on one split, stopped early on another, judged on a third, where one model, the fixed blend, weights by margin
    and the stack stand beside them.

    Raises:
        ValueError: a split is empty or too small, a model is not there, the models know the rows of `fit` by heart, or what
            `train_weights` raises; the message says what to do.
        MissingExtra: torch is not installed.
    """
    require_torch()
    if len(ask.models) < 2:
        raise ValueError(f"weights are over two models or more, got {', '.join(ask.models) or 'none'}")
    if strangers := [name for name in ask.models if name not in table.columns]:
        raise ValueError(f"the table has no model {', '.join(strangers)}; it has {', '.join(table.models)}")
    parts = _splits(table, ask)
    _known_by_heart(parts[0], parts[1], ask)
    plain = [distributions(part, ask.models) for part in parts]
    calibrators: Mapping[str, Fitted] = {}
    if ask.calibrate:
        calibrators, parts = calibrated_for(parts, ask.models)
        tell("calibrated " + (", ".join(f"{name} ({_method(one)})" for name, one in calibrators.items()) or "nothing"))
    fit, stop, report = parts
    scores = [distributions(part, ask.models) for part in parts]
    names = (*ask.features, *answer_features(ask.models, table.labels, ask.answers, ask.past))
    if not names:
        raise ValueError("nothing to learn weights from: name request features, pasts, or let them read answers")
    past = past_of(fit, ask.models, scores[0], ask.past)
    line = line_of(names, past)
    tell(f"reading {len(names)} numbers of {sum(map(len, parts)):,} rows")
    x = [read_rows(part, line) for part in parts]
    x[0] = as_it_was(x[0], fit, names, ask.models, scores[0], ask.when)
    data = [fusion_data(*each) for each in zip(parts, x, scores, strict=True)]
    tell(f"training on {len(fit):,} rows of {ask.fit}, stopping on {len(stop):,} of {ask.stop}")
    net = train_weights(data[0], data[1], names, ask.models, ask.recipe)
    weights = net.weights(x[2])
    top, alone = extremes(weights)
    cluster: Ints = np.arange(len(report), dtype=np.int32)
    if ask.cluster:
        cluster = coded(meta_values(report, ask.cluster))
        if (cluster < 0).any():
            raise ValueError(f"{ask.cluster} is missing on {int((cluster < 0).sum())} rows of {ask.report}")
    found = rivals(data, plain, weights, ask.models, cluster)
    return LearnedWeights(
        ask=ask,
        net=net,
        past=past,
        calibrators=calibrators,
        table=table,
        rows=len(fit),
        stopped=stop,
        judged=report,
        data=(data[0], data[1], data[2]),
        plain=(plain[0], plain[1], plain[2]),
        report=found,
        weights=weights,
        top=top,
        alone=alone,
        notes=tuple(_notes(table, ask, found, net, alone)),
    )


def _splits(table: OutcomesTable, ask: Ask) -> list[OutcomesTable]:
    if len({ask.report, ask.fit, ask.stop}) < 2 or ask.report in (ask.fit, ask.stop):
        raise ValueError(f"the figures must be of fresh rows: {ask.report} is what the weights are made from")
    parts = [table.select(split=name) for name in (ask.fit, ask.stop, ask.report)]
    parts = [part.subset(np.flatnonzero(part.complete(ask.models))) for part in parts]
    if ask.fit == ask.stop:
        half = _halved(parts[0], ask.cluster)
        parts[:2] = [parts[0].subset(np.flatnonzero(half)), parts[0].subset(np.flatnonzero(~half))]
    for name, part in zip((ask.fit, ask.stop, ask.report), parts, strict=True):
        if len(part) < FEWEST:
            lost = table.select(split=name).left_out(ask.models)
            raise ValueError(
                f"{name}: {len(part)} rows on which all models answered and the right label is known, {FEWEST} are "
                f"needed{f' (left out: {lost})' if lost else ''}; with rows in dev and test alone, fit and stop on dev"
            )
    return parts


def _halved(part: OutcomesTable, cluster: str) -> Bools:
    """Split rows in two by chance, equal inputs (or one cluster's rows) on the same side."""
    found = coded(meta_values(part, cluster)) if cluster else groups(part)
    keys = np.arange(len(part)) if found is None else np.asarray(found, dtype=np.uint64)
    distinct, place = np.unique(keys, return_inverse=True)
    side: Bools = (np.random.default_rng(0).permutation(len(distinct)) % 2 == 0)[place.reshape(-1)]
    return side


def _known_by_heart(fit: OutcomesTable, stop: OutcomesTable, ask: Ask) -> None:
    if ask.fit == ask.stop:
        return
    for name in ask.models:
        known, fresh = float(fit.correct(name).mean()), float(stop.correct(name).mean())
        if known - fresh > BY_HEART:
            raise ValueError(
                f"{name} is right on {known:.1%} of {ask.fit} and on {fresh:.1%} of {ask.stop}: it was trained on the rows "
                f"of {ask.fit}, and weights learned there would trust what it knows by heart. Fit on rows that no model has "
                f"seen ({ask.stop} for fitting and stopping), or give out-of-fold answers for {ask.fit}"
            )


def _method(fitted: Fitted) -> str:
    return type(fitted).__name__.lower()


def _notes(table: OutcomesTable, ask: Ask, found: Rivals, net: WeightNet, alone: float) -> list[str]:
    told = []
    if ask.recipe.spread == 0.0 and ask.recipe.curriculum == 0:
        told.append("trained without protection against collapse")
    if alone > COLLAPSED:
        told.append(f"one model has 0.98 of the weight or more on {alone:.0%} of the rows: this is a binary router")
    if float(net.blend.max()) >= 0.95:
        best = ask.models[int(net.blend.argmax())]
        told.append(f"the best fixed blend is {best} alone: the other models know nothing that {best} does not")
    if not found.gains["fixed blend"].better:
        told.append("not clearly better than the fixed blend, which needs no file: use that")
    if table.inputs is None and ask.features:
        told.append("the table kept no inputs: features of the request were not seen")
    return told
