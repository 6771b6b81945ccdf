"""An answer from before."""

from __future__ import annotations

from msgspec import Struct

from rheostat.types.prediction import Prediction


class Recalled(Struct, frozen=True):
    """A good answer to the same question: `age_s` seconds old, given by `model` in `version`."""

    prediction: Prediction
    age_s: float
    model: str
    version: str = ""
