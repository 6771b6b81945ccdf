"""The numbers of the service, derived from route records."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from rheostat.errors import FAILURES
from rheostat.telemetry.cache import CACHE_GAUGES
from rheostat.telemetry.labels import OTHER, Labels
from rheostat.telemetry.memory import MEMORY_GAUGES
from rheostat.telemetry.series import (
    Family,
    Histogram,
    Sample,
    counter,
    counter_samples,
    histogram,
    process_families,
    render,
)
from rheostat.types import Outcome, RouteRecord

if TYPE_CHECKING:
    from prometheus_client import Metric

REQUEST_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
OVERHEAD_SECONDS: Final = (1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.1, 1.0)
MODEL_SECONDS: Final = (1e-4, 2.5e-4, 5e-4, *REQUEST_SECONDS[1:])
WEIGHTS: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)

GAUGES: Final[dict[str, tuple[str, str, str]]] = {
    "rheostat_in_flight": ("gauge", "model", "Calls running now."),
    "rheostat_queue": ("gauge", "model", "Requests waiting for a place at a model now."),
    "rheostat_limit": ("gauge", "model", "Calls that may run at a time, 0 without a limit."),
    "rheostat_overflow_total": ("counter", "model", "Requests that got no place at a model and went on without it."),
    "rheostat_breaker_state": ("gauge", "model", "0 closed, 1 half-open, 2 open."),
    "rheostat_ramp": ("gauge", "model", "Share of its traffic a model may have, 0 while it may have none."),
    "rheostat_healthy": ("gauge", "model", "1, or 0 when health checks say that the model is not well."),
    "rheostat_retries_refused_total": ("counter", "model", "Retries that the model's retry budget did not allow."),
    "rheostat_error_rate": ("gauge", "model", "Share of recent calls that failed through the model's fault."),
    "rheostat_holds": ("gauge", "", "Keys whose last choice is remembered for hysteresis."),
    "rheostat_results": (
        "gauge",
        "state",
        "Requests to be completed later, by state; `posting` are due at the webhook.",
    ),
    "rheostat_results_refused_total": ("counter", "reason", "Requests that could not be promised an answer later."),
    "rheostat_spend_threshold": ("gauge", "budget", "Where the threshold of a budget stands, 0 to 1."),
    "rheostat_spend_used": ("gauge", "budget", "Mean use of a budget since the start, in the unit it is given in."),
    "rheostat_invalid_confidence_total": ("counter", "model", "Confidences that were no number from 0 to 1."),
    "rheostat_alerts": ("gauge", "kind", "What rings now, by kind (`watch`)."),
    "rheostat_records_queued": ("gauge", "sink", "Records waiting to be written."),
    "rheostat_records_dropped_total": ("counter", "reason", "Records that could not be stored, by reason."),
    **MEMORY_GAUGES,
    **CACHE_GAUGES,
}
"""What is read where it is kept, when the page is asked for: kind, label name ("" for none), help."""

_EVENTS: Final[dict[str, tuple[str, str]]] = {
    "rheostat_reloads_total": ("Reloads of the config.", "result"),
    "rheostat_router_errors_total": ("Failures of the router itself.", "reason"),
}

_PRESET = "preset"  # stands where a model's name stands when the configured answer was given
_ROUTER = "router_unavailable"
_STATUSES = ("ok", "degraded", "error", "rejected", "cancelled")
_TOGETHER = 32
"""Records that are counted one after the other: by itself each costs three times as much, as all it takes lies far away."""
_log = logging.getLogger("rheostat.telemetry")
Counts = dict[tuple[str, ...], float]


class _Route:
    """The cells of one route, found once per request."""

    __slots__ = ("cost", "decision", "name", "overhead", "seconds", "selected", "statuses", "types", "weights")

    def __init__(self, name: str) -> None:
        self.name = name
        self.statuses = dict.fromkeys((*_STATUSES, OTHER), 0)
        self.seconds = Histogram(REQUEST_SECONDS)
        self.overhead = Histogram(OVERHEAD_SECONDS)
        self.decision = Histogram(OVERHEAD_SECONDS)
        self.selected: dict[str, int] = {}
        self.types: dict[str, int] = {}
        self.weights: dict[str, Histogram] = {}
        self.cost = 0.0


class _Calls:
    """The cells of one model, version and result; the times are shared by all of the model's."""

    __slots__ = ("count", "seconds")

    def __init__(self, seconds: Histogram) -> None:
        self.count = 0
        self.seconds = seconds


class Metrics:
    """Counts requests and renders the Prometheus page; kept over reloads, so that counters never go down.

    One request costs a few microseconds (`observe`), and no client can make a new series: routes and models outside the
    allowed sets, versions after the eighth of a model and reasons after the fiftieth are counted under `other`.

    Args:
        routes, models: the names in the config; `allow` adds those of a later one.
        version: the package's version, for `rheostat_build_info`.
    """

    def __init__(self, *, routes: Iterable[str] = (), models: Iterable[str] = (), version: str = "") -> None:
        self._version = version
        self._routes_allowed = Labels(routes)
        self._models = Labels((*models, _PRESET))
        self._versions: dict[str, Labels] = {}
        self._reasons = Labels(spare=50)
        self._types = Labels(spare=20)
        self._results = Labels(("ok", *FAILURES))
        self._routes: dict[str, _Route] = {}
        self._calls: dict[tuple[str, str, str], _Calls] = {}
        self._call_counts: dict[tuple[str, ...], _Calls] = {}
        self._model_seconds: dict[str, Histogram] = {}
        self._first_seconds: dict[str, Histogram] = {}
        self._fallbacks: Counts = {}
        self._events: dict[str, Counts] = {name: {} for name in _EVENTS}
        self._uncounted: list[RouteRecord] = []
        self._counting = Lock()
        self._feedback = 0
        self._reviews: dict[str, float] = {}
        self._cached: dict[str, float] = {}
        self._cache: dict[tuple[str, ...], float] = {}
        self._gauges: dict[str, Callable[[], Mapping[str, float] | float]] = {}
        self._sources: list[Callable[[], Iterable[Family]]] = []
        self._routes_there((*routes, OTHER))

    def allow(self, *, routes: Iterable[str] = (), models: Iterable[str] = ()) -> None:
        """Give more routes and models series of their own, after a reload."""
        self._count_all()  # under what they were called when they came
        self._routes_allowed.allow(routes)
        self._models.allow(models)
        self._routes_there(routes)

    def observe(self, record: RouteRecord) -> None:
        """Take a finished request's record, which is counted with the next few, or when somebody asks for the numbers."""
        self._uncounted.append(record)
        if len(self._uncounted) >= _TOGETHER:
            self._count_all()

    def _count_all(self) -> None:
        with self._counting:
            uncounted, self._uncounted = self._uncounted, []
            for record in uncounted:
                self._count_record(record)

    def _count_record(self, record: RouteRecord) -> None:
        """Count everything that a record tells; of a request that was asked again, its calls."""
        if record.completes:  # its client has been answered, and counted, before
            self._tries(record.outcomes)
            return
        route = self._routes.get(record.route) or self._route(record.route)
        statuses = route.statuses
        status = record.status
        statuses[status if status in statuses else OTHER] += 1
        route.seconds.observe(record.elapsed_s)
        route.overhead.observe(record.overhead_s)
        route.decision.observe(record.deciding_s)
        if 0.0 < record.cost < 1e12:
            route.cost += record.cost
        if name := record.route_type:
            types = route.types
            try:
                types[name] += 1
            except KeyError:
                name = self._types.of(name)
                types[name] = types.get(name, 0) + 1
        if name := record.selected_model:
            selected = route.selected
            try:
                selected[name] += 1
            except KeyError:
                name = self._models.of(name)
                selected[name] = selected.get(name, 0) + 1
        for model, weight in record.weights.items():
            cell = route.weights.get(model)
            (cell if cell is not None else self._weight(route, model)).observe(weight)
        self._tries(record.outcomes)
        if record.level:
            why = record.fallback_reason
            reason = _ROUTER if why.startswith(_ROUTER) else self._reasons.of(why)  # what follows it is free text
            key = (str(min(record.level, 9)), reason)
            self._fallbacks[key] = self._fallbacks.get(key, 0) + 1
            if record.level == 4:
                self._cached[route.name] = self._cached.get(route.name, 0) + 1
        if record.cache:
            word = (route.name, record.cache)
            self._cache[word] = self._cache.get(word, 0) + 1
        if record.review:
            self._reviews[route.name] = self._reviews.get(route.name, 0) + 1

    def count_feedback(self) -> None:
        """Count one judgement that came in."""
        self._feedback += 1

    def count_reload(self, result: str) -> None:
        """Count a reload of the config; `result` is ok or failed."""
        self._count("rheostat_reloads_total", result if result in ("ok", "failed") else OTHER)

    def count_router_error(self, reason: str) -> None:
        """Count a request that went to the default model because the router itself failed."""
        self._count("rheostat_router_errors_total", self._reasons.of(reason))

    def gauge(self, name: str, read: Callable[[], Mapping[str, float] | float]) -> None:
        """Read a number (or one per label value) whenever the page is asked for; replaces an earlier one of this name.

        Raises:
            ValueError: the name is not in `GAUGES`.
        """
        if name not in GAUGES:
            raise ValueError(f"unknown gauge {name!r}; known: {', '.join(sorted(GAUGES))}")
        self._gauges[name] = read

    def include(self, source: Callable[[], Iterable[Family]]) -> None:
        """Put whole families on the page, read whenever it is asked for."""
        self._sources.append(source)

    def render(self) -> bytes:
        """Return the page in the Prometheus text format (`text/plain; version=0.0.4`)."""
        return render(self.families())

    def families(self) -> Iterator[Family]:
        """Yield every series with its present value."""
        self._count_all()
        yield from self._route_families()
        calls = {key: cell.count for key, cell in list(self._call_counts.items())}
        names = ("model", "version", "result")
        yield counter("rheostat_model_calls_total", "Tries at models by result: ok or how they failed.", names, calls)
        yield histogram("rheostat_model_seconds", "Time of one try at a model.", ("model",),
                         {(model,): cell for model, cell in list(self._model_seconds.items())})  # fmt: skip
        yield histogram("rheostat_model_first_piece_seconds", "Time to the first piece of a streamed answer.", ("model",),
                         {(model,): cell for model, cell in list(self._first_seconds.items())})  # fmt: skip
        yield counter("rheostat_fallback_total", "Requests answered by a rung of the fallback ladder.",
                       ("level", "reason"), self._fallbacks)  # fmt: skip
        for name, (text, label) in _EVENTS.items():
            yield counter(name, text, (label,), self._events[name])
        yield counter("rheostat_review_total", "Answers that a person should look at.", ("route",),
                       {(route,): count for route, count in list(self._reviews.items())})  # fmt: skip
        yield counter("rheostat_cached_answers_total", "Requests answered by an earlier answer (L4).", ("route",),
                       {(route,): count for route, count in list(self._cached.items())})  # fmt: skip
        yield counter("rheostat_cache_requests_total", "Requests of routes with a cache: hit, shared, miss or bypass.",
                       ("route", "result"), dict(self._cache))  # fmt: skip
        yield counter("rheostat_feedback_total", "Judgements that came in.", (), {(): self._feedback})
        version = (("version", self._version),)
        yield Family("rheostat_build_info", "gauge", "The running version.", [Sample("", version, 1)])
        yield from self._read_gauges()
        for source in self._sources:
            yield from source()
        yield from process_families()

    def collect(self) -> Iterator[Metric]:
        """Yield the series for a `prometheus_client` registry: `REGISTRY.register(metrics)`."""
        from prometheus_client import Metric

        for family in self.families():
            kind = family.kind
            metric = Metric(family.name.removesuffix("_total") if kind == "counter" else family.name, family.help, kind)
            for suffix, labels, value in family.samples:
                metric.add_sample(family.name + suffix, dict(labels), value)
            yield metric

    def _route_families(self) -> Iterator[Family]:
        routes = list({route.name: route for route in list(self._routes.values())}.values())
        yield counter("rheostat_requests_total", "Requests by how they ended.", ("route", "status"),
                       {(r.name, status): n for r in routes for status, n in r.statuses.items() if n})  # fmt: skip
        yield histogram("rheostat_request_seconds", "Time from arrival to answer.", ("route",),
                         {(r.name,): r.seconds for r in routes})  # fmt: skip
        yield histogram("rheostat_overhead_seconds", "Request time not spent waiting for models.", ("route",),
                         {(r.name,): r.overhead for r in routes})  # fmt: skip
        yield histogram("rheostat_decision_seconds", "Time spent deciding.", ("route",),
                         {(r.name,): r.decision for r in routes})  # fmt: skip
        yield counter("rheostat_selected_total", "Requests by the model that answered.", ("route", "model"),
                       {(r.name, model): count for r in routes for model, count in list(r.selected.items())})  # fmt: skip
        yield counter("rheostat_route_type_total", "Requests by the kind of decision.", ("route", "type"),
                       {(r.name, kind): count for r in routes for kind, count in list(r.types.items())})  # fmt: skip
        yield histogram("rheostat_weight", "How much each model's answer counted.", ("route", "model"),
                         {(r.name, model): cell for r in routes for model, cell in list(r.weights.items())})  # fmt: skip
        yield counter("rheostat_cost_total", "Cost of all calls, in the pool's unit.", ("route",),
                       {(r.name,): r.cost for r in routes})  # fmt: skip

    def _route(self, name: str) -> _Route:
        known = self._routes_allowed.of(name)
        route = self._routes.get(known)
        if route is None:
            route = self._routes[known] = _Route(known)
        if known is not OTHER:
            self._routes[name] = route  # a name that was cut leads to the same cells
        return route

    def _routes_there(self, routes: Iterable[str]) -> None:
        """Show the routes before anything comes their way: a rate over a series needs its zero."""
        for name in routes:
            self._route(name)

    def _weight(self, route: _Route, model: str) -> Histogram:
        known = self._models.of(model)
        cell = route.weights.get(known)
        if cell is None:
            cell = route.weights[known] = Histogram(WEIGHTS)
        return cell

    def _tries(self, outcomes: tuple[Outcome, ...]) -> None:
        calls = self._calls
        for outcome in outcomes:
            version = outcome.version
            served_by = outcome.served_by or outcome.model
            for attempt in outcome.attempts:
                model = attempt.model
                failure = attempt.failure
                key = (model, version if model == served_by else "", "ok" if failure is None else failure.kind)
                cell = calls.get(key)
                if cell is None:
                    cell = self._call(key)
                cell.count += 1
                value = attempt.elapsed_s
                if not 0.0 <= value < 1e12:
                    value = 0.0
                seconds = cell.seconds  # Histogram.observe, written out: this line runs for every call of every request
                seconds.counts[bisect_left(MODEL_SECONDS, value)] += 1
                seconds.sum += value
                if attempt.first_s is not None:
                    self._first_piece(model).observe(attempt.first_s)

    def _first_piece(self, model: str) -> Histogram:
        name = self._models.of(model)
        return self._first_seconds.setdefault(name, Histogram(REQUEST_SECONDS))

    def _call(self, key: tuple[str, str, str]) -> _Calls:
        """Find or make the cells of one kind of call; those of a stranger are not remembered under its own name."""
        model, version, result = key
        name = self._models.of(model)
        shown_version = OTHER
        if name is not OTHER:
            shown_version = self._versions.setdefault(name, Labels(("",), spare=8)).of(version)
        shown = (name, shown_version, self._results.of(result))
        cell = self._call_counts.get(shown)
        if cell is None:
            seconds = Histogram(MODEL_SECONDS)  # of calls that were cut off nobody knows how long they would have taken
            if result != "cancelled":
                seconds = self._model_seconds.setdefault(name, seconds)
            cell = self._call_counts[shown] = _Calls(seconds)
        if OTHER not in shown:
            self._calls[key] = cell
        return cell

    def _count(self, name: str, value: str) -> None:
        counts = self._events[name]
        counts[(value,)] = counts.get((value,), 0) + 1

    def _read_gauges(self) -> Iterator[Family]:
        for name, read in list(self._gauges.items()):
            kind, label_name, text = GAUGES[name]
            try:
                found: Any = read()
            except Exception:  # one broken reading must not take the page away
                _log.exception("the gauge %s could not be read", name)
                continue
            values: Counts = {}
            if label_name and isinstance(found, Mapping):
                bounded = self._models if label_name == "model" else self._reasons
                for key, value in found.items():
                    shown = (bounded.of(key),)
                    values[shown] = values.get(shown, 0) + value
                yield Family(name, kind, text, counter_samples((label_name,), values))
            else:
                total = sum(found.values()) if isinstance(found, Mapping) else found
                yield Family(name, kind, text, [Sample("", (), total)])
