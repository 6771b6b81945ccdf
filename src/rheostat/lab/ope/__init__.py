"""Off-policy evaluation: what another policy would have earned on traffic that was decided by chance."""

from rheostat.lab.ope.estimators import ESTIMATORS, HEADLINE, Estimated, evaluate
from rheostat.lab.ope.log import Log, OpeRefused, Overlap, check_overlap, overlap
from rheostat.lab.ope.records import log_from_records

__all__ = [
    "ESTIMATORS",
    "HEADLINE",
    "Estimated",
    "Log",
    "OpeRefused",
    "Overlap",
    "check_overlap",
    "evaluate",
    "log_from_records",
    "overlap",
]
