"""Work over many rows."""

from rheostat.jobs.evaluate import Evaluation, EvaluationStopped, Work, evaluate
from rheostat.jobs.example import BadLine, Columns, Example, Part
from rheostat.jobs.labelled import LabelledSet, Survey
from rheostat.jobs.lines import DataError
from rheostat.jobs.splits import split_of

__all__ = [
    "BadLine",
    "Columns",
    "DataError",
    "Evaluation",
    "EvaluationStopped",
    "Example",
    "LabelledSet",
    "Part",
    "Survey",
    "Work",
    "evaluate",
    "split_of",
]
