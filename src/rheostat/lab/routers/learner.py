"""What every kind of router has in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from rheostat.lab.metrics import Floats
from rheostat.lab.routers.data import Columns, RoutingData

Setting = Mapping[str, Any]


class Fitted(Protocol):
    """A fitted router."""

    def predict(self, x: Columns) -> Floats:
        """Return a score per row; the higher, the sooner the strong model is asked."""

    def to_onnx(self) -> Any:
        """Return the same as an `onnx.ModelProto`: float32 `x` (n, width) to (n, 1)."""


@dataclass(frozen=True)
class Learner:
    """A way to make a router.

    Args:
        what: what it is, for people.
        fit: from rows and a setting to a fitted router.
        grid: the settings that inner cross-validation chooses from.
        quick: what is changed of a setting while it is being chosen, so that choosing stays cheap.
        meaning: what its score says: the expected `gain`, or a `probability`.
    """

    name: str
    what: str
    fit: Callable[[RoutingData, Setting], Fitted]
    grid: Sequence[Setting] = ({},)
    meaning: Literal["gain", "probability"] = "gain"
    quick: Setting = field(default_factory=dict)
