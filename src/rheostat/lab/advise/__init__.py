"""Whether to route at all, with what, and how sure that is."""

from rheostat.lab.advise.advice import Advice, Settings, advise
from rheostat.lab.advise.claims import Claim
from rheostat.lab.advise.traps import traps

__all__ = ["Advice", "Claim", "Settings", "advise", "traps"]
