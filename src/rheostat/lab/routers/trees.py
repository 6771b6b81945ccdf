"""Routers made of trees: one that a person can read, boosted ones, and a forest of random ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rheostat.lab.learned_file import OPSET, from_sklearn
from rheostat.lab.metrics import Floats
from rheostat.lab.routers.data import Columns, RoutingData
from rheostat.lab.routers.graph import Condensed
from rheostat.lab.routers.learner import Setting


@dataclass(frozen=True)
class Trees:
    """A fitted scikit-learn ensemble behind a condensed x."""

    front: Condensed
    model: Any

    def predict(self, x: Columns) -> Floats:
        found: Floats = np.asarray(self.model.predict(self.front.apply(x)), dtype=np.float64)
        return found

    def to_onnx(self) -> Any:
        return self.front.before(from_sklearn(self.model, self.front.matrix.shape[1]))


@dataclass(frozen=True)
class Boosted(Trees):
    """Boosted trees over histograms, written node by node: skl2onnx 1.20 cannot convert those of scikit-learn 1.9."""

    def to_onnx(self) -> Any:
        from onnx import TensorProto, helper

        held: dict[str, list[Any]] = {name: [] for name in (*_NODE, *_LEAF)}
        for tree, (predictor,) in enumerate(self.model._predictors):
            for place, node in enumerate(predictor.nodes):
                leaf = bool(node["is_leaf"])
                cut = 0.0 if leaf else _below(float(node["num_threshold"]))
                ends = (0, 0) if leaf else (int(node["left"]), int(node["right"]))
                mode, missing = ("LEAF", 0) if leaf else ("BRANCH_LEQ", int(node["missing_go_to_left"]))
                for name, value in zip(
                    _NODE, (tree, place, int(node["feature_idx"]), cut, mode, *ends, missing), strict=True
                ):
                    held[name].append(value)
                if leaf:
                    for name, value in zip(_LEAF, (tree, place, 0, float(node["value"])), strict=True):
                        held[name].append(value)
        base = [float(np.ravel(self.model._baseline_prediction)[0])]
        node = helper.make_node(
            "TreeEnsembleRegressor", ["z"], ["gain"], domain="ai.onnx.ml", n_targets=1, base_values=base, **held
        )
        graph = helper.make_graph(
            [node], "boosted",
            [helper.make_tensor_value_info("z", TensorProto.FLOAT, [None, self.front.matrix.shape[1]])],
            [helper.make_tensor_value_info("gain", TensorProto.FLOAT, [None, 1])],
        )  # fmt: skip
        imports = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", 3)]
        return self.front.before(helper.make_model(graph, opset_imports=imports, ir_version=8))


_NODE = (
    "nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_values", "nodes_modes", "nodes_truenodeids",
    "nodes_falsenodeids", "nodes_missing_value_tracks_true",
)  # fmt: skip
_LEAF = ("target_treeids", "target_nodeids", "target_ids", "target_weights")


def _below(cut: float) -> float:
    """The greatest float32 that is not above `cut`: float32 inputs then fall on the same side as in float64."""
    near = np.float32(cut)
    return float(near if near <= cut else np.nextafter(near, np.float32(-np.inf)))


@dataclass(frozen=True)
class Rules(Trees):
    """One shallow tree over plain numbers and one-hot columns."""

    names: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Return one line a leaf, highest gain first: the conditions, the expected gain, the rows it rests on."""
        tree = self.model.tree_
        found: list[tuple[float, str]] = []

        def walk(node: int, said: tuple[str, ...]) -> None:
            if tree.children_left[node] < 0:
                gain, rows = float(tree.value[node].reshape(-1)[0]), int(tree.n_node_samples[node])
                found.append((gain, f"if {' and '.join(said) or 'always'}: gain {gain:+.3f} ({rows} rows)"))
                return
            name, cut = self.names[tree.feature[node]], float(tree.threshold[node])
            low, high = (f"not {name}", name) if "=" in name else (f"{name} <= {cut:.4g}", f"{name} > {cut:.4g}")
            walk(int(tree.children_left[node]), (*said, low))
            walk(int(tree.children_right[node]), (*said, high))

        walk(0, ())
        return [line for _, line in sorted(found, reverse=True)]


def fit_tree(data: RoutingData, setting: Setting) -> Rules:
    """Fit a regression tree of the gain; it never reads the embedding, whose numbers have no names.

    Raises:
        ValueError: there are no named features.
    """
    from sklearn.tree import DecisionTreeRegressor

    if not data.features:
        raise ValueError("a tree that can be read needs named features; there is only an embedding")
    whole = Condensed.fit(data)
    front = Condensed(whole.fill, np.eye(data.x.shape[1], dtype=np.float32)[:, : len(data.features)])
    least = max(5, len(data) // 50)
    model = DecisionTreeRegressor(max_depth=setting["depth"], min_samples_leaf=least, random_state=0)
    return Rules(front, model.fit(front.apply(data.x), data.gain), data.features)


def fit_boosted(data: RoutingData, setting: Setting) -> Boosted:
    """Fit gradient-boosted trees of the gain over histograms."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    front = Condensed.fit(data)
    model = HistGradientBoostingRegressor(
        learning_rate=0.04, max_iter=setting["rounds"], max_leaf_nodes=12, min_samples_leaf=min(60, max(5, len(data) // 25)),
        l2_regularization=5.0, max_features=0.3, early_stopping=False, random_state=0,
    )  # fmt: skip
    return Boosted(front, model.fit(front.apply(data.x), data.gain))


def fit_forest(data: RoutingData, setting: Setting) -> Trees:
    """Fit extremely randomised trees of the gain. Source: Geurts, Ernst and Wehenkel (2006)."""
    from sklearn.ensemble import ExtraTreesRegressor

    front = Condensed.fit(data)
    model = ExtraTreesRegressor(
        setting.get("trees", 150), min_samples_leaf=setting["leaf"], max_features=0.3, random_state=0
    )
    return Trees(front, model.fit(front.apply(data.x), data.gain))
