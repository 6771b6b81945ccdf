"""Where Rheostat puts what the checks of a case speak of: parts of an answer, metrics, reasons in the route log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rheostat.testing.cases.client import Answer

PATHS: Final[Mapping[str, tuple[str, ...]]] = {
    "label": ("data", "final_label"),
    "confidence": ("data", "final_score"),
    "scores": ("data", "scores"),
    "model": ("data", "route_info", "selected_model"),
    "y": ("data", "output", "y"),
}
"""Where the first word of a path leads; other words lead into the model's own output, or else into the whole body."""

METRICS: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "requests_total": ("rheostat_requests_total", {}),
    "in_flight": ("rheostat_in_flight", {}),
    "queue_length": ("rheostat_queue", {}),
    "overflow_total": ("rheostat_overflow_total", {}),
    "breaker_state": ("rheostat_breaker_state", {}),
    "upstream_calls_total": ("rheostat_model_calls_total", {}),
    "fallbacks_total": ("rheostat_fallback_total", {}),
    "config_reloads_total": ("rheostat_reloads_total", {}),
    "config_reload_failures_total": ("rheostat_reloads_total", {"result": "failed"}),
}
"""Names of metrics, with labels that belong to the name."""

PER_MODEL: Final[Mapping[str, str]] = {"requests_total": "rheostat_selected_total"}
"""The metric that has a label `model` where the one of METRICS has none."""

IDEAS: Final[Mapping[str, tuple[str, ...]]] = {
    "too_large": ("input_too_large",),
    "unknown_label": ("unknown_label",),
    "rate_limited": ("rate_limited",),
    "timeout": ('"timeout"', '"deadline"'),
    "breaker_open": ('"unavailable"',),
    "queue_full": ('"overloaded"',),
    "client_cancelled": ('"cancelled"',),
    "router_unavailable": ("router_unavailable",),
    "invalid_confidence": ("invalid_confidence",),
    "uncertain": ('"uncertain"',),
}
"""Ideas in a route log and the words of Rheostat for them; a word that is not here is looked for as it stands."""


def part_of(answer: Answer, path: str) -> Any:
    """Return what stands at a neutral path, such as `scores.x`.

    Raises:
        KeyError: there is nothing.
    """
    first, *rest = path.split(".")
    body = answer.json
    if first in PATHS:
        return _at(body, (*PATHS[first], *rest))
    try:
        return _at(body, ("data", "output", first, *rest))
    except KeyError:
        return _at(body, (first, *rest))


def model_of(answer: Answer) -> str | None:
    """Return the model that answered, or None where none did."""
    return answer.headers.get("x-rheostat-model")


def has_idea(log: str, idea: str) -> bool:
    """Return True when the route log tells of `idea`."""
    return any(word in log for word in IDEAS.get(idea, (idea,)))


def metric_name(name: str, labels: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return Rheostat's name of a metric, and the labels to look for.

    Raises:
        KeyError: the name is not known.
    """
    if "model" in labels and name in PER_MODEL:
        return PER_MODEL[name], dict(labels)
    own, fixed = METRICS[name]
    return own, {**fixed, **labels}


def _at(body: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        if isinstance(body, list) and name.isdigit() and int(name) < len(body):
            body = body[int(name)]
        elif isinstance(body, Mapping) and name in body:
            body = body[name]
        else:
            raise KeyError(".".join(path))
    return body
