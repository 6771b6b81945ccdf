"""Weights trained through the mix: they find who knows what, keep to the simplex, and do not collapse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from rheostat.lab.learned_file import predict_learned, write_learned
from rheostat.lab.weights.fusion import FusionData, fixed_blend, losses, mixed
from rheostat.lab.weights.predictor import Recipe, WeightNet, extremes, train_weights
from rheostat.signals import LearnedCard

pytest.importorskip("torch")


def two_kinds(n: int, seed: int) -> FusionData:
    """Two models, equally good over all; the first feature says, not surely, which is better, the others say nothing."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 2, n)
    first = rng.random(n) < 0.5
    sharp = np.stack([np.where(first, 2.0, 0.3), np.where(first, 0.3, 2.0)], axis=1)
    odds = (2 * truth[:, None] - 1) * sharp + rng.normal(size=(n, 2))
    chance = 1.0 / (1.0 + np.exp(-odds))
    x = np.concatenate([(first + rng.normal(0.0, 1.0, n))[:, None], rng.normal(size=(n, 11))], axis=1)
    return FusionData(x, np.stack([1.0 - chance, chance], axis=2), truth)


NAMES = tuple(f"f{at}" for at in range(12))
TRAIN, DEV, TEST = two_kinds(1500, 1), two_kinds(600, 2), two_kinds(2000, 3)


@pytest.fixture(scope="module")
def net() -> WeightNet:
    return train_weights(TRAIN, DEV, NAMES, ("s", "l"))


def test_they_beat_the_best_fixed_blend(net: WeightNet) -> None:
    own = losses(mixed(TEST.scores, net.weights(TEST.x)), TEST.truth).mean()
    assert own < losses(mixed(TEST.scores, fixed_blend(TEST)), TEST.truth).mean() - 0.02
    knows_first = TEST.x[:, 0] > 0.5
    weight = net.weights(TEST.x)[:, 0]
    assert weight[knows_first].mean() > weight[~knows_first].mean() + 0.2


def test_they_lie_on_the_simplex_whatever_is_read(net: WeightNet, tmp_path: Path) -> None:
    strange = np.array([[np.nan] * 12, [1e30] * 12, [-1e30] * 12, [0.0] * 12])
    for weights in (net.weights(strange), net.weights(TEST.x)):
        assert weights.min() >= 0.0
        assert weights.sum(axis=1) == pytest.approx(1.0)
    card = LearnedCard(meaning="weights", features=NAMES, outputs=("s", "l"))
    write_learned(net.to_onnx(), card, tmp_path / "w.onnx")
    for x in (strange, TEST.x):
        assert predict_learned(tmp_path / "w.onnx", x) == pytest.approx(net.weights(x), abs=1e-5)


def test_without_the_protections_they_collapse_and_with_them_they_do_not() -> None:
    inviting = Recipe(spread=0.1, rate=3e-2, decay=0.0, epochs=80, patience=0)
    kept = train_weights(TRAIN, DEV, NAMES, ("s", "l"), inviting)
    lost = train_weights(TRAIN, DEV, NAMES, ("s", "l"), replace(inviting, spread=0.0, curriculum=0))
    alone = [extremes(one.weights(TEST.x))[1] for one in (kept, lost)]
    assert alone[1] > 0.6
    assert alone[0] < 0.1


def test_the_same_seed_gives_the_same_weights() -> None:
    quick = Recipe(epochs=2)
    one, two = (train_weights(TRAIN, DEV, NAMES, ("s", "l"), quick) for _ in range(2))
    assert np.array_equal(one.weights(TEST.x), two.weights(TEST.x))


def test_with_nothing_to_read_they_stay_near_the_fixed_blend() -> None:
    blind = [part._replace(x=np.random.default_rng(0).normal(size=(len(part.x), 2))) for part in (TRAIN, DEV)]
    found = train_weights(*blind, ("a", "b"), ("s", "l"))
    assert np.abs(found.weights(blind[1].x) - fixed_blend(DEV)).mean() < 0.15


def test_columns_that_do_not_match_are_refused() -> None:
    with pytest.raises(ValueError, match="12 columns for 2 features"):
        train_weights(TRAIN, DEV, ("a", "b"), ("s", "l"))
