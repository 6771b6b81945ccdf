"""A model behind an Open Inference Protocol v2 server (KServe, Triton, MLServer), over HTTP with JSON tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from urllib.parse import quote

from msgspec import Struct

from rheostat.backends.labels import settle_labels
from rheostat.backends.openai import answer_each, with_path
from rheostat.backends.reply import as_reply, bad_output
from rheostat.backends.secrets import masked_url
from rheostat.backends.tensor import Tensor, tensor_named
from rheostat.backends.upstream import StatusKind, Upstream, encode
from rheostat.errors import ConfigError, ModelError, Problem
from rheostat.pool.backend import ModelSettings, RemoteBackend, Reply, Row
from rheostat.pool.rows import feature_vector, text_in
from rheostat.types.duration import Duration


class InputTensor(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The tensor a row becomes: its text (`datatype: BYTES`) or the numbers `features` of it in this order
    (`datatype: FP32`). The shape is [1, 1] or [1, n], without the leading 1 when the model is not `batched`."""

    name: str
    datatype: Literal["BYTES", "FP32"] = "BYTES"
    features: tuple[str, ...] = ()
    batched: bool = True

    def __post_init__(self) -> None:
        if (self.datatype == "FP32") != bool(self.features):
            raise ValueError("`features` and `datatype: FP32` belong together: the names of the numbers, in order")

    def of(self, row: Row) -> dict[str, Any]:
        """Return the row as a tensor of the protocol.

        Raises:
            ModelError: `input_refused` when the row lacks its text or a number.
        """
        data: list[str] | list[float] = self._numbers(row) if self.features else [text_in(row)]
        shape = [1, len(data)] if self.batched else [len(data)]
        return {"name": self.name, "shape": shape, "datatype": self.datatype, "data": data}

    def _numbers(self, row: Row) -> list[float]:
        values = feature_vector(row, self.features)
        for name, value in zip(self.features, values, strict=True):
            if not math.isfinite(value):  # JSON has no other numbers
                raise ModelError("input_refused", f"feature {name!r} is missing or not finite")
        return values


_STATUS: Mapping[int, StatusKind] = {400: "misconfigured"}
"""A row is looked at before the call: what is refused then is a name, type or shape, and those are the config's."""


class InferenceModel(ModelSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="inference_protocol"):
    """Asks `model` (in the version `version_path`, else the server's own choice) of the server at `base_url`: each row
    goes to `.../v2/models/MODEL/infer` as the tensor `input`, and the tensor `output` is read.

    Floats are the probabilities of `labels`, in that order; with `softmax: true` they are logits. Text is one label. Data
    may be flat or nested; another number of values than the shape or the labels say, or one that is not finite, is
    `bad_output`. A 400 is the config's fault: a name, type or shape the server does not know. `api_key` is sent as a
    bearer token, `headers` as they are. `parallel` rows of one call are asked at a time. After a 429 or 5xx with
    Retry-After the model is left alone for that time, at most `max_retry_after`. `on_status` says what a
    status means, by its kind of failure, where the usual table does not fit.
    """

    base_url: str
    model: str
    version_path: str = ""
    input: InputTensor
    output: str
    softmax: bool = False
    api_key: str = ""
    headers: Mapping[str, str] = {}
    parallel: int = 8
    max_retry_after: Duration = Duration(60.0)
    on_status: Mapping[int, StatusKind] = {}

    @property
    def check_url(self) -> str:
        """The protocol's own question whether the model is ready."""
        return with_path(self.base_url, f"/v2/models/{quote(self.model, safe='')}/ready")

    def open(self, base: str) -> RemoteBackend:  # noqa: ARG002
        """Prepare the endpoint; nothing is sent yet.

        Raises:
            ConfigError: the URL, a name or a number cannot be used.
        """
        problems = [
            Problem(name, None, "expected a name that is not empty")
            for name, value in (("model", self.model), ("input.name", self.input.name), ("output", self.output))
            if not value
        ]
        if not 1 <= self.parallel <= 1024:
            problems.append(Problem("parallel", None, f"expected 1 to 1024, got {self.parallel}"))
        if self.softmax and not self.labels:
            problems.append(Problem("labels", None, "expected the labels that the logits belong to, in order"))
        if problems:
            raise ConfigError(problems)
        headers = dict(self.headers)
        if self.api_key:
            headers["authorization"] = f"Bearer {self.api_key}"
        version = f"/versions/{quote(self.version_path, safe='')}" if self.version_path else ""
        url = with_path(self.base_url, f"/v2/models/{quote(self.model, safe='')}{version}/infer")
        upstream = Upstream(url, headers, self.max_retry_after, "base_url", on_status={**_STATUS, **self.on_status})
        return InferenceClassifier(self, upstream, settle_labels(self.labels, None, self.model))

    def __repr__(self) -> str:
        return f"InferenceModel(model={self.model!r}, base_url={masked_url(self.base_url)!r}, labels={self.labels!r})"


class InferenceClassifier:
    """Asks once a row and reads one output tensor."""

    def __init__(self, settings: InferenceModel, upstream: Upstream, labels: tuple[str, ...] | None) -> None:
        self.labels = labels
        self._upstream = upstream
        self._input = settings.input
        self._output = settings.output
        self._wanted = [{"name": settings.output}]
        self._softmax = settings.softmax
        self._parallel = settings.parallel

    async def apredict(self, rows: Sequence[Row], timeout_s: float) -> Sequence[Reply]:
        """Answer every row within `timeout_s` seconds; each fails alone."""
        return await answer_each(self._one, rows, timeout_s, self._parallel)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._upstream.aclose()

    async def _one(self, row: Row, timeout_s: float) -> Reply:
        body = encode({"inputs": [self._input.of(row)], "outputs": self._wanted})
        answer = await self._upstream.ask(body, timeout_s)
        return self._upstream.hide(self._read(answer))

    def _read(self, answer: Any) -> Reply:
        tensor = tensor_named(self._output, answer)
        if isinstance(tensor, ModelError):
            return tensor
        return read_answer(tensor, self.labels, softmax=self._softmax)


def read_answer(tensor: Tensor, labels: Sequence[str] | None, *, softmax: bool = False) -> Reply:
    """Read an output tensor as a label, or as the probabilities (or logits) of `labels`."""
    values = tensor.values
    if tensor.datatype == "BYTES" and not softmax:
        return as_reply(values[0], labels) if len(values) == 1 else bad_output("one label", values)
    if not tensor.is_float:
        return bad_output("floats" if softmax else "floats, or one label as BYTES", f"{tensor.datatype} {values}")
    if not labels:
        return ModelError("misconfigured", f"{tensor.name!r} holds numbers, and no `labels` say whose they are")
    if len(values) != len(labels):
        return bad_output(f"one number for each of the labels {list(labels)}", values)
    return as_reply(dict(zip(labels, _softmax(values) if softmax else values, strict=True)), labels)


def _softmax(values: Sequence[float]) -> list[float]:
    largest = max(values)
    parts = [math.exp(value - largest) for value in values]
    total = math.fsum(parts)
    return [part / total for part in parts]
