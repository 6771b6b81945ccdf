"""The running mean of a model's latency: no single early call decides it."""

from __future__ import annotations

import pytest

from rheostat.testing import scripted_model


def test_the_first_answers_count_alike_and_later_ones_a_tenth() -> None:
    model = scripted_model("a")
    for number, elapsed_s in enumerate((0.001, 0.1, 0.1, 0.1), 1):
        model.begin(float(number))
        model.ended(None, False, elapsed_s, number + elapsed_s)
    assert model.latency_s == pytest.approx(0.301 / 4)
    for number in range(5, 100):
        model.begin(float(number))
        model.ended(None, False, 0.1, number + 0.1)
    assert model.latency_s == pytest.approx(0.1, rel=0.01)
    model.ended(None, False, 0.2, 100.0)
    assert model.latency_s == pytest.approx(0.11, rel=0.02)
