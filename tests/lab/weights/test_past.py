"""Past performance knows nothing of the row itself or of what came later."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rheostat.lab.weights.past import earlier_mean


def test_a_table_by_hand() -> None:
    found = earlier_mean(["a", "b", "a", "a", "a", "c"], [1.0, 0.0, 0.0, np.nan, 1.0, 1.0], [1, 1, 2, 3, 3, 9], 0.5, 2.0)
    assert found.tolist() == pytest.approx([0.5, 0.5, (1 + 1) / 3, (1 + 1) / 4, (1 + 1) / 4, 0.5])


ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.sampled_from([0.0, 1.0])), min_size=1, max_size=30)


@given(ROWS, st.data())
def test_neither_the_own_value_nor_later_ones_count(rows: list[tuple[int, int, float]], data: st.DataObject) -> None:
    keys, when, values = (np.array(column) for column in zip(*rows, strict=True))
    row = data.draw(st.integers(0, len(rows) - 1))
    before = earlier_mean(keys, values, when, 0.3)[row]
    changed = np.where(when >= when[row], 1.0 - values, values)
    assert earlier_mean(keys, changed, when, 0.3)[row] == pytest.approx(before)
    naive = [v for k, t, v in rows if k == keys[row] and t < when[row]]
    assert before == pytest.approx((0.3 * 10 + sum(naive)) / (10 + len(naive)))


def test_rows_that_do_not_match_are_refused() -> None:
    with pytest.raises(ValueError, match="2 keys, 1 values"):
        earlier_mean(["a", "b"], [1.0], [1, 2], 0.5)
    with pytest.raises(ValueError, match="strength"):
        earlier_mean(["a"], [1.0], [1], 0.5, 0.0)
