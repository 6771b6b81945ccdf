"""Routing among any number of models: predict each one's quality, then choose by quality and cost, behind a guard."""

from rheostat.lab.many.choose import SLACK, Chosen, Sweep, choose, pick, sweep, trades
from rheostat.lab.many.data import ManyData, many_from_table
from rheostat.lab.many.judge import Judged, Unseen, aiq_gap, guarded, judge, out_of_fold, quality_gap
from rheostat.lab.many.methods import METHODS, Method, Predictor, fitted
from rheostat.lab.many.save import quality_lines, save_quality

__all__ = [
    "METHODS",
    "SLACK",
    "Chosen",
    "Judged",
    "ManyData",
    "Method",
    "Predictor",
    "Sweep",
    "Unseen",
    "aiq_gap",
    "choose",
    "fitted",
    "guarded",
    "judge",
    "many_from_table",
    "out_of_fold",
    "pick",
    "quality_gap",
    "quality_lines",
    "save_quality",
    "sweep",
    "trades",
]
