"""A small net for the chance that the small model errs: settings chosen on dev, written as plain ONNX."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from rheostat.lab.difficulty.examples import TEXT, WORDS, Examples
from rheostat.lab.difficulty.robust import with_edits
from rheostat.lab.learned_file import write_learned
from rheostat.lab.metrics import Floats, floats
from rheostat.signals.learned import LearnedCard

_FAR: Final = 3.0  # standardised numbers are cut here: no single count can decide alone
QUANTILES: Final = 101


class Setting(Struct, frozen=True, kw_only=True):
    """How a net is fitted.

    Args:
        features: its columns.
        hidden: units of the hidden layer of one member; 0: logistic regression.
        penalty: strength of the ridge on its weights, as scikit-learn's `alpha` (hidden) or 1 / C (none).
        epochs: passes over the rows.
        members: nets of other seeds whose log odds are averaged.
    """

    features: tuple[str, ...] = TEXT
    hidden: int = 16
    penalty: float = 10.0
    epochs: int = 15
    members: int = 3


GRID: Final = (
    Setting(hidden=0, penalty=10.0),
    Setting(hidden=0, penalty=300.0),
    Setting(hidden=16, penalty=10.0),
    Setting(features=(*TEXT, *WORDS), hidden=0, penalty=300.0),
    Setting(features=(*TEXT, *WORDS), hidden=0, penalty=1000.0),
    Setting(features=(*TEXT, *WORDS), hidden=16, penalty=100.0, epochs=8),
)
"""What `choose` tries."""


@dataclass(frozen=True)
class Net:
    """log(1 + feature), standardised and cut at 3 -> hidden layer (ReLU), or none -> sigmoid.

    Args:
        mean, scale: of the logarithms, (d,).
        first: (d, h) and (h,), None without a hidden layer.
        last: (h or d,) and the offset.
    """

    features: tuple[str, ...]
    mean: Floats
    scale: Floats
    first: tuple[Floats, Floats] | None
    last: tuple[Floats, float]

    def predict(self, x: npt.NDArray[Any]) -> Floats:
        """Return the chance that the small model errs, (n,)."""
        z = _standard(x, self.mean, self.scale)
        if self.first is not None:
            z = np.maximum(z @ self.first[0] + self.first[1], 0.0)
        said: Floats = 1.0 / (1.0 + np.exp(-np.clip(z @ self.last[0] + self.last[1], -50.0, 50.0)))
        return said

    def onnx(self) -> Any:
        """Return the same as an `onnx.ModelProto`: `x` (n, d) to (n, 1)."""
        from rheostat.lab.routers.graph import Graph

        graph = Graph()
        z = graph.op("Log", graph.op("Add", graph.op("Max", "x", graph.hold(0)), graph.hold(1)))
        z = graph.op("Div", graph.op("Sub", z, graph.hold(self.mean)), graph.hold(self.scale))
        z = graph.op("Clip", z, graph.hold(-_FAR), graph.hold(_FAR))
        if self.first is not None:
            z = graph.op("Relu", graph.op("Gemm", z, graph.hold(self.first[0]), graph.hold(self.first[1])))
        weights, offset = self.last
        out = graph.op("Sigmoid", graph.op("Gemm", z, graph.hold(weights[:, None]), graph.hold([offset])))
        return graph.model(out, len(self.features))


class Chosen(Struct, frozen=True, kw_only=True):
    """What was tried, with the AUROC of each on dev, and which one was kept."""

    tried: tuple[tuple[Setting, float], ...]
    setting: Setting
    auroc: float


def auroc(error: npt.ArrayLike, score: npt.ArrayLike) -> float:
    """Return the chance that a row with an error has a higher score than one without; ties count half, 0.5 is chance.

    Source: Hanley and McNeil (1982).

    Raises:
        ValueError: only one class, or NaN.
    """
    from scipy.stats import rankdata

    wrong, said = floats(error, "error") > 0.5, floats(score, "score")
    hits, misses = int(wrong.sum()), int((~wrong).sum())
    if not hits or not misses:
        raise ValueError("AUROC needs rows with an error and rows without one")
    ranks = rankdata(said)
    return float((ranks[wrong].sum() - hits * (hits + 1) / 2) / (hits * misses))


def fit_net(rows: Examples, setting: Setting, seed: int = 0, edits: int = 0) -> Net:
    """Fit a net on all the rows.

    Args:
        edits: copies of every row with one character changed that are learned with the row's own label.

    Raises:
        ValueError: the small model is always right or always wrong on the rows.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier

    part = rows.only(setting.features)
    if part.error.min() == part.error.max():
        raise ValueError("the small model is always right, or always wrong, on these rows: nothing to learn")
    if edits:
        part = with_edits(part, edits, seed)
    logs = np.log1p(np.maximum(part.x.astype(np.float64), 0.0))
    mean, spread = logs.mean(axis=0), logs.std(axis=0)
    scale = np.where(spread > 1e-6, spread, 1.0)
    z, wrong = _standard(part.x, mean, scale), part.error > 0.5
    if not setting.hidden:
        flat = LogisticRegression(C=1.0 / setting.penalty, max_iter=500, tol=1e-3).fit(z, wrong)
        return Net(part.features, mean, scale, None, (flat.coef_[0].astype(np.float64), float(flat.intercept_[0])))
    members = []
    for member in range(setting.members):
        net = MLPClassifier(
            (setting.hidden,), alpha=setting.penalty, max_iter=setting.epochs, batch_size=min(256, len(z)),
            random_state=seed + member,
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the number of passes is a setting
            members.append(net.fit(z, wrong))
    first = (
        np.concatenate([net.coefs_[0] for net in members], axis=1),
        np.concatenate([net.intercepts_[0] for net in members]),
    )
    last = np.concatenate([net.coefs_[1][:, 0] for net in members]) / setting.members
    return Net(part.features, mean, scale, first, (last, float(np.mean([net.intercepts_[1][0] for net in members]))))


def choose(
    fit: Examples,
    dev: Examples,
    grid: Sequence[Setting] = GRID,
    tell: Callable[[str], None] | None = None,
    edits: int = 0,
) -> tuple[Net, Chosen]:
    """Fit every setting, keep the one with the highest AUROC on dev.

    Raises:
        LeakError, ValueError: as `check_leaks` says.
    """
    from rheostat.lab.difficulty.leak import check_leaks

    check_leaks(fit, dev)
    nets, found = [], []
    for setting in grid:
        net = fit_net(fit, setting, edits=edits)
        nets.append(net)
        found.append(auroc(dev.error, net.predict(dev.only(net.features).x)))
        if tell is not None:
            words = "text and words" if len(setting.features) > len(TEXT) else f"{len(setting.features)} features"
            tell(f"{words}, hidden {setting.hidden}, penalty {setting.penalty:g}: AUROC on dev {found[-1]:.4f}")
    best = int(np.argmax(found))
    return nets[best], Chosen(tried=tuple(zip(grid, found, strict=True)), setting=grid[best], auroc=found[best])


def save_net(
    net: Net, fit: Examples, path: str | os.PathLike[str], *, fitted_on: str = "train", notes: Sequence[str] = ()
) -> LearnedCard:
    """Write the net for the `learned` scorer, with the quantiles of what it says on the rows it was fitted on.

    Raises:
        OSError: it cannot be written.
    """
    said = net.predict(fit.only(net.features).x)
    levels = np.quantile(said, np.linspace(0.0, 1.0, QUANTILES))
    card = LearnedCard(
        meaning="difficulty",
        features=net.features,
        data_hash=fit.data_hash,
        rows=len(fit),
        fitted_on=fitted_on,
        quantiles=tuple(round(float(level), 6) for level in levels),
        notes=tuple(notes),
    )
    return write_learned(net.onnx(), card, path)


def _standard(x: npt.NDArray[Any], mean: Floats, scale: Floats) -> Floats:
    logs = np.log1p(np.maximum(x.astype(np.float64), 0.0))
    z: Floats = np.clip((logs - mean) / scale, -_FAR, _FAR)
    return z
