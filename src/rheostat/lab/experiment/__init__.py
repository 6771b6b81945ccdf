"""Experiments: any policies on the same traffic, compared fairly."""

from rheostat.lab.experiment.figures import Arm, Comparison, Experiment, Fairness, Gap, GroupFigure, Weighing
from rheostat.lab.experiment.metric import Accuracy, Custom, LogLoss, Metric, Reward, parse_metric
from rheostat.lab.experiment.ranking import Auc, TopK
from rheostat.lab.experiment.run import Contender, experiment
from rheostat.lab.experiment.served import Served, Traffic
from rheostat.lab.experiment.unit import Units

__all__ = [
    "Accuracy",
    "Arm",
    "Auc",
    "Comparison",
    "Contender",
    "Custom",
    "Experiment",
    "Fairness",
    "Gap",
    "GroupFigure",
    "LogLoss",
    "Metric",
    "Reward",
    "Served",
    "TopK",
    "Traffic",
    "Units",
    "Weighing",
    "experiment",
    "parse_metric",
]
