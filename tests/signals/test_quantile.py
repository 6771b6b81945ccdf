from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import Ridge

from rheostat.errors import ConfigError
from rheostat.lab.learned_file import from_sklearn, write_learned
from rheostat.signals import LearnedCard
from rheostat.signals.learned import LearnedScorerSettings
from rheostat.signals.quantile import Quantiles
from rheostat.types import Request


def test_where_a_value_stands() -> None:
    fixed = Quantiles([0.0, 1.0, 1.0, 1.0, 5.0])
    assert [fixed.place(value) for value in (-1.0, 0.0, 0.5, 1.0, 3.0, 5.0, 9.0)] == [0, 0, 0.125, 0.5, 0.875, 1, 1]
    assert Quantiles([2.0, 2.0]).place(2.0) == 0.5
    for wrong in ((), (1.0,), (2.0, 1.0)):
        with pytest.raises(ValueError, match="two or more rising"):
            Quantiles(wrong)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50))
def test_the_same_values_in_the_same_order_give_the_same_places(values: list[float]) -> None:
    first, second = Quantiles([0.0, 0.5, 1.0], follow=True), Quantiles([0.0, 0.5, 1.0], follow=True)
    said = [first.place(value) for value in values]
    assert said == [second.place(value) for value in values]
    assert all(0.0 <= place <= 1.0 for place in said)


def test_a_share_of_the_traffic_stays_that_share_when_the_traffic_drifts() -> None:
    rng = np.random.default_rng(0)
    levels = np.quantile(rng.normal(size=5000), np.linspace(0, 1, 101)).tolist()
    moving, fixed = Quantiles(levels, follow=True), Quantiles(levels)
    drifted = rng.normal(1.0, 0.7, size=6000)
    hard = [(moving.place(value) >= 0.8, fixed.place(value) >= 0.8) for value in drifted]
    share, without = np.mean(hard[3000:], axis=0)
    assert abs(share - 0.2) < 0.04
    assert without > 0.5


def test_a_learned_signal_says_its_place(tmp_path: Path) -> None:
    model = from_sklearn(Ridge(alpha=1e-9).fit([[0.0], [10.0]], [0.0, 10.0]), 1)
    card = LearnedCard(meaning="difficulty", features=("length",), quantiles=(0.0, 5.0, 10.0))
    write_learned(model, card, tmp_path / "d.onnx")
    request = Request(id="1", data="a" * 5, text="a" * 5)
    for kind, place in (("", 5.0), ("training", 0.5), ("traffic", 0.5)):
        scorer = LearnedScorerSettings(path="d.onnx", quantiles=kind).open("d", str(tmp_path))  # type: ignore[arg-type]
        assert scorer.score(request) == {"d": pytest.approx(place, abs=1e-5)}
    write_learned(model, LearnedCard(meaning="difficulty", features=("length",)), tmp_path / "n.onnx")
    with pytest.raises(ConfigError, match=r"n\.onnx has none"):
        LearnedScorerSettings(path="n.onnx", quantiles="traffic").open("d", str(tmp_path))
