"""What a model reads of a row: its text, or named features as numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rheostat.errors import ModelError
from rheostat.types.text import well_formed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def feature_matrix(rows: Sequence[Any], names: Sequence[str]) -> NDArray[np.float32]:
    """Return an (n, len(names)) float32 matrix; a missing or null feature is NaN, a truth value 0 or 1.

    Raises:
        ModelError: `input_refused` when a row is no mapping or a feature is no number.
    """
    import numpy as np

    return np.array([feature_vector(row, names) for row in rows], dtype=np.float32)


def feature_vector(row: Any, names: Sequence[str]) -> list[float]:
    """Return one row's features in the order of `names`."""
    if not isinstance(row, Mapping):
        raise ModelError("input_refused", f"expected a mapping with the features {list(names)}, got {type(row).__name__}")
    plain: list[Any] = [row.get(name) for name in names]
    if set(map(type, plain)) == {float}:
        return plain
    values: list[float] = []
    for name in names:
        value = row.get(name)
        try:
            if isinstance(value, str):
                raise TypeError
            values.append(float("nan") if value is None else float(value))
        except (TypeError, ValueError, OverflowError):
            raise ModelError("input_refused", f"feature {name!r} is not a number: {value!r:.80}") from None
    return values


def text_in(row: Any) -> str:
    """Return the row's text, fit for UTF-8.

    Raises:
        ModelError: `input_refused` when it has none.
    """
    text = row.get("text") if isinstance(row, Mapping) else row
    if not isinstance(text, str):
        raise ModelError("input_refused", f"expected text, or a mapping with a text field, got {row!r:.80}")
    return well_formed(text)
