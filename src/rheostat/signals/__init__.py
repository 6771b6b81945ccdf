"""Numbers known before deciding, and certainty that can be believed. Heavy libraries load when a scorer is opened."""

from rheostat.signals.answer_line import AnswerLine
from rheostat.signals.answers import AnswersScorerSettings
from rheostat.signals.base import Scorer, ScorerSettings
from rheostat.signals.calibrated import Calibrated, CalibratedRemote, calibrated
from rheostat.signals.calibrator import Calibrator, load_calibrator, save_calibrator
from rheostat.signals.feature_line import FeatureLine
from rheostat.signals.groups import GroupsScorerSettings
from rheostat.signals.learned import LearnedCard, LearnedScorerSettings
from rheostat.signals.onnx_scorer import OnnxScorerSettings, ScorerError
from rheostat.signals.python_scorer import PythonScorerSettings
from rheostat.signals.text import FEATURES, TextFeatures

SCORERS: dict[str, type[ScorerSettings]] = {
    "onnx": OnnxScorerSettings,
    "learned": LearnedScorerSettings,
    "answers": AnswersScorerSettings,
    "groups": GroupsScorerSettings,
    "python": PythonScorerSettings,
}
"""Settings by the name that `scorer:` takes in a config."""

__all__ = [
    "FEATURES",
    "SCORERS",
    "AnswerLine",
    "AnswersScorerSettings",
    "Calibrated",
    "CalibratedRemote",
    "Calibrator",
    "FeatureLine",
    "GroupsScorerSettings",
    "LearnedCard",
    "Scorer",
    "ScorerError",
    "ScorerSettings",
    "TextFeatures",
    "calibrated",
    "load_calibrator",
    "save_calibrator",
]
