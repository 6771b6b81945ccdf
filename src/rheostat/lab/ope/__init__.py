"""Off-policy evaluation: what another policy would have earned on traffic that was decided by chance."""

from rheostat.lab.ope.estimators import ESTIMATORS, HEADLINE, Estimated, evaluate
from rheostat.lab.ope.log import Log, OpeRefused, Overlap, check_overlap, overlap

__all__ = ["ESTIMATORS", "HEADLINE", "Estimated", "Log", "OpeRefused", "Overlap", "check_overlap", "evaluate", "overlap"]
