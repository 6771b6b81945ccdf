"""Rheostat as a server of the Open Inference Protocol v2, whatever carries it: a route is a model there."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import structs

import rheostat
from rheostat.engine.engine import Served
from rheostat.errors import BadRequest, NotFound, Overloaded, http_status
from rheostat.gateway.body import RouteOptions
from rheostat.gateway.headers import request_id
from rheostat.gateway.inference_outputs import OUTPUTS, check_wanted, tensors_of
from rheostat.gateway.inference_rows import NAMES, rows_of
from rheostat.gateway.rows import in_parallel, in_turns
from rheostat.tensors import Tensor

if TYPE_CHECKING:
    from rheostat.config.schema import KeySettings
    from rheostat.gateway.predict import PredictApi

EXTENSIONS = ("binary_tensor_data", "parameters")
_OWN = frozenset((NAMES, "binary_data_output", "max_cost", "timeout"))
_NOT_SERVED = ("sequence_id", "sequence_start", "sequence_end")
_log = logging.getLogger("rheostat.gateway")


class Asked(NamedTuple):
    """An inference request: what is asked (`name`, in `version` unless that is empty), the client's own `id` for it, and the
    outputs that are wanted (none: the usual ones)."""

    name: str
    version: str
    id: str
    parameters: Mapping[str, Any]
    inputs: Sequence[Tensor]
    outputs: Sequence[str]


class Answered(NamedTuple):
    """An inference response; `served` are its rows."""

    name: str
    version: str
    parameters: Mapping[str, str | bool | int | float]
    outputs: Sequence[Tensor]
    served: Sequence[Served]


class InferenceCore:
    """Serves the protocol's questions by the rules of `/v1/predict`: same keys, limits, deadlines and records."""

    def __init__(self, predict: PredictApi) -> None:
        self.predict = predict
        self.router = predict.router

    @property
    def server(self) -> dict[str, Any]:
        """What the server says of itself."""
        return {"name": "rheostat", "version": rheostat.__version__, "extensions": list(EXTENSIONS)}

    @property
    def ready(self) -> bool:
        """Whether requests are taken, and not all of them in vain."""
        return self.router.ready and not self.predict.draining and self.router.can_answer

    def check_open(self) -> None:
        """Raise `Overloaded` when the gateway is stopping."""
        if self.predict.draining:
            raise Overloaded("the gateway is stopping; ask another one")

    def metadata(self, name: str, version: str) -> dict[str, Any]:
        """Return what the server says of a route or a model.

        Raises:
            NotFound: there is none of this name and version.
        """
        options, known = self._place(name, version)
        models = [options.force_model] if options.force_model is not None else list(self._links(options.name))
        settings = [self.router.config.models[model] for model in models]
        features = dict.fromkeys(feature for each in settings for feature in getattr(each, "features", ()))
        inputs = [{"name": feature, "datatype": "FP64", "shape": [-1]} for feature in features]
        if not inputs or any(not getattr(each, "features", ()) for each in settings):
            inputs.insert(0, {"name": "text", "datatype": "BYTES", "shape": [-1]})
        outputs = [
            {"name": each, "datatype": datatype, "shape": [-1, -1] if each == "scores" else [-1]}
            for each, datatype in OUTPUTS.items()
        ]
        return {"name": name, "versions": [known], "platform": "rheostat", "inputs": inputs, "outputs": outputs}

    def model_ready(self, name: str, version: str) -> bool:
        """Return whether a route (then: whether requests are taken) or a model may be asked.

        Raises:
            NotFound: there is none of this name and version.
        """
        options, _ = self._place(name, version)
        if options.force_model is None:
            return self.ready
        model = self.router.plan.pool.models[options.force_model]
        return self.ready and model.health.healthy and not model.retry_after(self.router.clock.monotonic())

    async def infer(
        self,
        asked: Asked,
        key: KeySettings | None,
        raw: Any,
        found: Mapping[bytes, bytes],
        known_id: str,
        watch: Callable[[Awaitable[None]], Awaitable[None]] | None = None,
        within_s: float | None = None,
    ) -> Answered:
        """Serve every row of a request by itself; row 3 of request R has the id `R.3`.

        Args:
            key: the caller's, already known.
            raw, found: the client's headers, all of them and those that matter.
            watch: does the work while watching whether the client is still there, where whoever calls does not.
            within_s: seconds until the deadline of the call that carries the request, if it has one.

        Raises:
            RheostatError: the request is wrong, or its rows were not answered.
        """
        options, version = self._place(asked.name, asked.version)
        options = structs.replace(
            options, timeout_ms=_timeout_ms(asked.parameters, within_s), max_cost=_max_cost(asked.parameters)
        )
        self.predict.allow(key, options)
        check_wanted(asked.outputs)
        rows = rows_of(asked.inputs, asked.parameters, self.router.config.server.max_batch)
        meta = {name: value for name, value in asked.parameters.items() if name not in _OWN}
        for name in _NOT_SERVED:
            if name in meta:
                raise BadRequest(
                    "sequences are not served: requests that belong together say so by `session`", f"parameters.{name}"
                )
        router = self.router
        served: list[Served | None] = [None] * len(rows)

        async def one(index: int) -> None:
            own_id = known_id if len(rows) == 1 else f"{known_id}.{index}"
            request = self.predict.request(rows[index], meta, options, raw, found, key, own_id)
            served[index] = await router.serve(request)

        if router.is_quick(options.name):
            await in_turns(len(rows), one)
        else:
            work = in_parallel(len(rows), one, key.max_in_flight if key is not None else 0)
            await (work if watch is None else watch(work))
        done = [each for each in served if each is not None]
        for each in done:
            if each.error is not None and http_status(each.error) == 500:
                _log.error("request %s failed inside: %s", each.record.id, each.error)
        outputs = tensors_of(done, asked.outputs, self._labels(options.name))
        return Answered(asked.name, version, _told(known_id, done), outputs, done)

    def _place(self, name: str, version: str) -> tuple[RouteOptions, str]:
        """Return the way to go for a name, and its version. A model goes by the first route that it is on."""
        plan, config = self.router.plan, self.router.config
        if name in plan.lanes:
            options, known = RouteOptions(name=name), plan.lanes[name].policy_version or "1"
        elif name in config.models:
            routes = [route for route in plan.lanes if name in self._links(route)]
            route = "default" if "default" in routes or not routes else routes[0]
            options, known = RouteOptions(name=route, force_model=name), config.models[name].version
        else:
            raise NotFound(f"there is no route and no model named {name[:80]!r}; routes: {', '.join(plan.lanes)}")
        if version and version != known:
            raise NotFound(f"{name!r} has the version {known!r}, not {version[:80]!r}")
        return options, known

    def _links(self, route: str) -> Sequence[str]:
        lane = self.router.plan.lanes.get(route)
        return tuple(lane.route.links) if lane is not None else ()

    def _labels(self, route: str) -> Sequence[str]:
        """Return the label set in the order that a client sees it: the config's, else the first model's that has one."""
        if self.router.config.labels:
            return self.router.config.labels
        models = self.router.plan.pool.models
        return next((models[name].backend.labels or () for name in self._links(route) if models[name].backend.labels), ())


def id_of(asked: Asked, found: Mapping[bytes, bytes], known_id: str) -> str:
    """Return the request's id: a client that named none in `x-request-id` may do so in the request."""
    if not asked.id or b"x-request-id" in found:
        return known_id
    return request_id({b"x-request-id": asked.id.encode("utf-8", "replace")})


def _timeout_ms(parameters: Mapping[str, Any], within_s: float | None) -> float | None:
    """Return the parameter `timeout`, in microseconds (0 is none), or what is left of `within_s` if that is less."""
    within_ms = None if within_s is None else within_s * 1000.0
    given = parameters.get("timeout")
    if given is None or given == 0:
        return within_ms
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given < 1e15:
        raise BadRequest("timeout is a positive number of microseconds", "parameters.timeout")
    return given / 1000.0 if within_ms is None else min(given / 1000.0, within_ms)


def _max_cost(parameters: Mapping[str, Any]) -> float | None:
    given = parameters.get("max_cost")
    if given is not None and (isinstance(given, bool) or not isinstance(given, int | float)):
        raise BadRequest("max_cost is a number above 0, in the unit of the models' costs", "parameters.max_cost")
    return given


def _told(known_id: str, served: Sequence[Served]) -> dict[str, str | bool | int | float]:
    """Return the parameters of a response: for one row, how its answer came about."""
    told: dict[str, str | bool | int | float] = {"request_id": known_id}
    if len(served) == 1:
        record = served[0].record
        told.update(
            selected_model=record.selected_model, selected_version=record.selected_version, route_type=record.route_type,
            reason=record.reason, fallback_level=record.level, fallback_reason=record.fallback_reason,
            policy_version=record.policy_version, config_version=record.config_version, cost=float(record.cost),
            review=bool(record.review), cached=record.age_s is not None,
        )  # fmt: skip
    return told
