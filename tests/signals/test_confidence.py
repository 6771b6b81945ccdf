import pytest
from hypothesis import given
from hypothesis import strategies as st

from rheostat.signals.confidence import confidence, entropy, margin


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ({"a": 1.0}, (1.0, 1.0, 0.0)),
        ({"a": 1.0, "b": 0.0}, (1.0, 1.0, 0.0)),
        ({"a": 0.5, "b": 0.5}, (0.5, 0.0, 1.0)),
        ({"a": 0.2, "b": 0.7, "c": 0.1}, (0.7, 0.5, 0.7298)),
    ],
)
def test_known_values(scores: dict[str, float], expected: tuple[float, float, float]) -> None:
    assert (confidence(scores), margin(scores), entropy(scores)) == pytest.approx(expected, abs=1e-3)


@given(
    st.dictionaries(st.text(max_size=2), st.floats(0.0, 1.0), min_size=1, max_size=6).filter(
        lambda s: sum(s.values()) > 0.01
    )
)
def test_every_number_lies_in_its_range(raw: dict[str, float]) -> None:
    total = sum(raw.values())
    scores = {label: value / total for label, value in raw.items()}
    assert 0.0 <= margin(scores) <= confidence(scores) <= 1.0 + 1e-9
    assert 0.0 <= entropy(scores) <= 1.0
