"""Rheostat: a dial instead of a switch. It decides for every request which models run and how much each answer counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rheostat.learn import RoutedClassifier, RoutedRegressor
    from rheostat.policies import Policy, settle
    from rheostat.pool import Backend, RemoteBackend
    from rheostat.router import Router
    from rheostat.sync import SyncRouter, open_router
    from rheostat.types import Answer, Call, Context, Decision, Decline, Feedback, Outcome, Prediction, Request, RouteRecord

__version__ = "0.1.0"

_HOMES = {
    "Answer": "rheostat.types",
    "Backend": "rheostat.pool",
    "Call": "rheostat.types",
    "Context": "rheostat.types",
    "Decision": "rheostat.types",
    "Decline": "rheostat.types",
    "Feedback": "rheostat.types",
    "Outcome": "rheostat.types",
    "Policy": "rheostat.policies",
    "Prediction": "rheostat.types",
    "RemoteBackend": "rheostat.pool",
    "Request": "rheostat.types",
    "RouteRecord": "rheostat.types",
    "RoutedClassifier": "rheostat.learn",
    "RoutedRegressor": "rheostat.learn",
    "Router": "rheostat.router",
    "SyncRouter": "rheostat.sync",
    "open_router": "rheostat.sync",
    "settle": "rheostat.policies",
}

__all__ = [
    "Answer",
    "Backend",
    "Call",
    "Context",
    "Decision",
    "Decline",
    "Feedback",
    "Outcome",
    "Policy",
    "Prediction",
    "RemoteBackend",
    "Request",
    "RouteRecord",
    "RoutedClassifier",
    "RoutedRegressor",
    "Router",
    "SyncRouter",
    "open_router",
    "settle",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import rheostat` costs next to nothing."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'rheostat' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value
