"""For tests of your own parts: laws, models and servers that do as told, a bad network, and time that does not pass."""

from rheostat.testing.chaos import ChaosProxy, Weather
from rheostat.testing.laws import check_backend, check_policy
from rheostat.testing.scripted import Act, Scripted, scripted_model
from rheostat.testing.scripted_stream import Flow, ScriptedStream, streaming_model
from rheostat.testing.storm import Storm
from rheostat.testing.upstream import Call, FaultyUpstream
from rheostat.testing.virtual import VirtualLoop, run_virtual

__all__ = [
    "Act",
    "Call",
    "ChaosProxy",
    "FaultyUpstream",
    "Flow",
    "Scripted",
    "ScriptedStream",
    "Storm",
    "VirtualLoop",
    "Weather",
    "check_backend",
    "check_policy",
    "run_virtual",
    "scripted_model",
    "streaming_model",
]
