"""Learns weights per request, end to end through the mix of scores, on the feedback label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from rheostat.errors import MissingExtra
from rheostat.lab.metrics import Floats
from rheostat.lab.weights.fusion import FusionData, checked, fixed_blend, losses, mixed

_BATCH: Final = 1024
_FAR: Final = 5.0  # standardised features are cut here, so that a stray value cannot decide alone


class Recipe(Struct, frozen=True, kw_only=True):
    """How weights are trained.

    The two protections against collapse (all weight on one model): `spread`, the strength of KL(fixed blend || weights),
    which goes to infinity as a weight goes to 0; and the `curriculum`, so many epochs over which the net's say grows from
    0 to its full size while the spread falls from ten times its strength. 0 turns either off; without a curriculum the net
    starts from random weights and not at the fixed blend. With `patience` 0 there is no early stopping: all `epochs` run
    and the last one is kept.
    """

    hidden: int = 64
    spread: float = 0.02
    curriculum: int = 5
    epochs: int = 40
    patience: int = 8
    rate: float = 5e-3
    decay: float = 1e-2
    seed: int = 0


@dataclass(frozen=True)
class WeightNet:
    """Trained weights: standardise, one hidden layer, softmax. `blend` is the fixed blend it started from."""

    features: tuple[str, ...]
    models: tuple[str, ...]
    mean: Floats
    scale: Floats
    first: tuple[Floats, Floats]
    second: tuple[Floats, Floats]
    blend: Floats
    epochs: int

    def weights(self, x: npt.ArrayLike) -> Floats:
        """Return rows x models, each row on the simplex. What is missing (NaN) counts as the mean."""
        table = np.asarray(x, dtype=np.float64)
        z = np.clip(np.where(np.isnan(table), 0.0, (table - self.mean) / self.scale), -_FAR, _FAR)
        hidden = np.maximum(z @ self.first[0] + self.first[1], 0.0)
        odds = hidden @ self.second[0] + self.second[1]
        powers = np.exp(odds - odds.max(axis=1, keepdims=True))
        found: Floats = powers / powers.sum(axis=1, keepdims=True)
        return found

    def to_onnx(self) -> Any:
        """Return the ONNX model (`onnx.ModelProto`): float32 `x` (n, features) to weights (n, models)."""
        from onnx import TensorProto, helper, numpy_helper

        held = {
            "mean": self.mean, "scale": self.scale, "low": np.array(-_FAR), "high": np.array(_FAR),
            "w1": self.first[0], "b1": self.first[1], "w2": self.second[0], "b2": self.second[1],
        }  # fmt: skip
        steps = [
            ("IsNaN", ["x"], "gone"), ("Where", ["gone", "mean", "x"], "filled"), ("Sub", ["filled", "mean"], "centred"),
            ("Div", ["centred", "scale"], "scaled"), ("Clip", ["scaled", "low", "high"], "z"),
            ("Gemm", ["z", "w1", "b1"], "line"), ("Relu", ["line"], "hidden"), ("Gemm", ["hidden", "w2", "b2"], "odds"),
        ]  # fmt: skip
        nodes = [helper.make_node(kind, taken, [made]) for kind, taken, made in steps]
        nodes.append(helper.make_node("Softmax", ["odds"], ["weights"], axis=1))
        graph = helper.make_graph(
            nodes,
            "weights",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, len(self.features)])],
            [helper.make_tensor_value_info("weights", TensorProto.FLOAT, [None, len(self.models)])],
            [numpy_helper.from_array(np.asarray(value, dtype=np.float32), name) for name, value in held.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def train_weights(
    train: FusionData, dev: FusionData, features: Sequence[str], models: Sequence[str], recipe: Recipe | None = None
) -> WeightNet:
    """Train on `train`, stop early by the log loss of the mix on `dev`; both calibrated, neither the rows of a report.

    The scores of train must be of models that have not seen those rows (out of fold): else the weights learn which model
    has learned them by heart.

    Raises:
        ValueError: data that cannot be learned from; the message says which and why.
        MissingExtra: torch is not installed.
    """
    recipe = recipe or Recipe()
    checked(train, "train")
    checked(dev, "dev")
    if train.x.shape[1] != len(features) or train.scores.shape[1] != len(models):
        raise ValueError(
            f"x has {train.x.shape[1]} columns for {len(features)} features, scores {train.scores.shape[1]} models"
        )
    mean = np.where(np.isfinite(train.x).any(axis=0), np.nanmean(train.x, axis=0), 0.0)
    scale = np.nanstd(train.x, axis=0)
    scale = np.where(np.isfinite(scale) & (scale > 1e-9), scale, 1.0)
    blend = np.clip(fixed_blend(dev), 1e-3, 1.0)
    blend /= blend.sum()
    (w1, b1, w2, b2), epochs = _fit(train, dev, (mean, scale), blend, recipe)
    return WeightNet(tuple(features), tuple(models), mean, scale, (w1, b1), (w2, b2), blend, epochs)


def extremes(weights: Floats, edge: float = 0.98) -> tuple[float, float]:
    """Return the mean of each row's largest weight, and the share of rows where it is `edge` or more."""
    top = weights.max(axis=1)
    return float(top.mean()), float((top >= edge).mean())


def require_torch() -> None:
    """Raise MissingExtra when torch is not installed."""
    if find_spec("torch") is None:
        raise MissingExtra("training weights", "torch")


def _fit(
    train: FusionData, dev: FusionData, form: tuple[Floats, Floats], blend: Floats, recipe: Recipe
) -> tuple[tuple[Floats, ...], int]:
    require_torch()
    import torch
    from torch import nn

    torch.manual_seed(recipe.seed)
    torch.set_num_threads(1)

    def ready(x: Floats) -> Any:
        z = np.clip(np.where(np.isnan(x), 0.0, (x - form[0]) / form[1]), -_FAR, _FAR)
        return torch.tensor(z, dtype=torch.float32)

    x, chance = ready(train.x), torch.tensor(_right(train), dtype=torch.float32)
    goal = torch.tensor(blend, dtype=torch.float32)
    base = goal.log() if recipe.curriculum else torch.zeros_like(goal)
    one, two = nn.Linear(x.shape[1], recipe.hidden), nn.Linear(recipe.hidden, len(blend))
    if recipe.curriculum:
        nn.init.zeros_(two.weight)
        nn.init.zeros_(two.bias)
    adam = torch.optim.AdamW([*one.parameters(), *two.parameters()], recipe.rate, weight_decay=recipe.decay)
    fresh = ready(dev.x)
    least, waited, ended = np.inf, 0, 0
    kept: tuple[Floats, ...] = ()
    for epoch in range(recipe.epochs):
        say = min(1.0, (epoch + 1) / recipe.curriculum) if recipe.curriculum else 1.0
        spread = recipe.spread * (1.0 + 9.0 * (1.0 - say))
        order = torch.randperm(len(x))
        for start in range(0, len(order), _BATCH):
            rows = order[start : start + _BATCH]
            adam.zero_grad()
            logs = torch.log_softmax(base + say * two(torch.relu(one(x[rows]))), dim=1)
            loss = -torch.logsumexp(logs + chance[rows].log(), dim=1).mean()
            loss = loss + spread * (goal * (goal.log() - logs)).sum(dim=1).mean()
            loss.backward()
            adam.step()
        with torch.no_grad():
            odds = base + say * two(torch.relu(one(fresh)))
            now = float(losses(mixed(dev.scores, torch.softmax(odds, dim=1).double().numpy()), dev.truth).mean())
            waited = 0 if now < least - 1e-6 or not recipe.patience else waited + 1
            if not waited:
                least, ended = now, epoch + 1
                parts = (one.weight.T, one.bias, say * two.weight.T, base + say * two.bias)
                kept = tuple(part.double().numpy().copy() for part in parts)
        if waited and waited >= recipe.patience and epoch >= recipe.curriculum:
            break
    return kept, ended


def _right(data: FusionData) -> Floats:
    chance: Floats = np.clip(data.scores[np.arange(len(data.truth)), :, data.truth], 1e-7, 1.0)
    return chance
