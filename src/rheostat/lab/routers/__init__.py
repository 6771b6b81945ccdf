"""Binary routers learned from outcomes: weak or strong, by the gain a request promises."""

from rheostat.lab.routers.data import TEXT, RoutingData, from_table, same_prompts
from rheostat.lab.routers.judge import (
    Judged,
    OutOfFold,
    against,
    importance,
    judge,
    out_of_fold,
    threshold_for_quality,
    threshold_for_share,
)
from rheostat.lab.routers.learners import LEARNERS, fitted
from rheostat.lab.routers.save import config_lines, save_router

__all__ = [
    "LEARNERS",
    "TEXT",
    "Judged",
    "OutOfFold",
    "RoutingData",
    "against",
    "config_lines",
    "fitted",
    "from_table",
    "importance",
    "judge",
    "out_of_fold",
    "same_prompts",
    "save_router",
    "threshold_for_quality",
    "threshold_for_share",
]
