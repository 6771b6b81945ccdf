"""For tests of your own parts: laws, models that do as told, and time that does not pass by itself."""

from rheostat.testing.laws import check_policy
from rheostat.testing.scripted import Act, Scripted, scripted_model
from rheostat.testing.virtual import VirtualLoop, run_virtual

__all__ = ["Act", "Scripted", "VirtualLoop", "check_policy", "run_virtual", "scripted_model"]
