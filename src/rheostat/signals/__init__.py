"""Numbers known before deciding, and certainty that can be believed. Heavy libraries load when a scorer is opened."""

from rheostat.signals.base import Scorer, ScorerSettings
from rheostat.signals.calibrated import Calibrated, CalibratedRemote, calibrated
from rheostat.signals.calibrator import Calibrator, load_calibrator, save_calibrator
from rheostat.signals.onnx_scorer import OnnxScorerSettings, ScorerError
from rheostat.signals.python_scorer import PythonScorerSettings
from rheostat.signals.text import FEATURES, TextFeatures

SCORERS: dict[str, type[ScorerSettings]] = {"onnx": OnnxScorerSettings, "python": PythonScorerSettings}
"""Settings by the name that `scorer:` takes in a config."""

__all__ = [
    "FEATURES",
    "SCORERS",
    "Calibrated",
    "CalibratedRemote",
    "Calibrator",
    "Scorer",
    "ScorerError",
    "ScorerSettings",
    "TextFeatures",
    "calibrated",
    "load_calibrator",
    "save_calibrator",
]
