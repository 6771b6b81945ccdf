"""Quality of every model from a forest of random trees that all models share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rheostat.lab.many.data import ManyData
from rheostat.lab.many.linear import fit_means
from rheostat.lab.routers.graph import Condensed
from rheostat.lab.routers.learner import Setting
from rheostat.lab.routers.trees import Trees

_AXES = 48


@dataclass(frozen=True)
class Forest(Trees):
    """Trees with one output a model."""

    def to_onnx(self) -> Any:
        from onnx import TensorProto, helper

        made = super().to_onnx()
        said = made.graph.output[0]
        shape = [None, int(self.model.n_outputs_)]  # skl2onnx says one column, whatever comes out
        said.CopyFrom(helper.make_tensor_value_info(said.name, TensorProto.FLOAT, shape))
        return made


def fit_forest(data: ManyData, setting: Setting) -> Forest:
    """Fit extremely randomised trees of all models' quality at once. Source: Geurts, Ernst and Wehenkel (2006).

    They read the plain numbers, the embedding by its 48 main axes, and of a group each model's shrunk mean quality.
    """
    from sklearn.ensemble import ExtraTreesRegressor

    front = _condensed(data)
    model = ExtraTreesRegressor(
        setting.get("trees", 120), min_samples_leaf=setting["leaf"], max_features=0.3, random_state=0
    )
    return Forest(front, model.fit(front.apply(data.x), data.quality))


def _condensed(data: ManyData) -> Condensed:
    width, plain = data.x.shape[1], data.frame.plain
    parts = [np.eye(width)[:, :plain]]
    if data.grouped:
        parts.append(fit_means(data, {"shrink": 10.0}).slope)
    if data.embedding:
        values = data.x[:, len(data.features) :].astype(np.float64)
        centred = values - values.mean(axis=0)
        _, vectors = np.linalg.eigh(centred.T @ centred)
        turned = np.zeros((width, min(_AXES, data.embedding)))
        turned[len(data.features) :] = vectors[:, ::-1][:, : turned.shape[1]]
        parts.append(turned)
    numbers, fill = data.x[:, :plain].astype(np.float64), np.zeros(width)
    known = np.isfinite(numbers).any(axis=0)
    fill[:plain][known] = np.nanmedian(numbers[:, known], axis=0)
    return Condensed(fill, np.concatenate(parts, axis=1).astype(np.float32))
