"""A model behind an Open Inference Protocol v2 server (KServe, Triton, MLServer), over HTTP or gRPC."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, urlsplit

from msgspec import Struct

from rheostat.backends.endpoint import with_path
from rheostat.backends.inference_classifier import InferenceClassifier
from rheostat.backends.inference_facts import Described, Transport
from rheostat.backends.inference_grpc import PORTS, GrpcTransport
from rheostat.backends.inference_http import HttpTransport
from rheostat.backends.labels import settle_labels
from rheostat.backends.secrets import masked_url
from rheostat.backends.upstream import StatusKind, Upstream
from rheostat.errors import ConfigError, ModelError, Problem
from rheostat.pool.backend import ModelSettings, RemoteBackend, Row
from rheostat.pool.rows import feature_vector, text_in
from rheostat.tensors import INTEGERS
from rheostat.types.duration import Duration


class InputTensor(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The tensor a row becomes: its text (`datatype: BYTES`) or the numbers `features` of it in this order (another
    datatype). The shape is [1, 1] or [1, n], without the leading 1 when the model is not `batched`; where the server
    declares texts without a second dimension, a text is [1]."""

    name: str
    datatype: Literal["BYTES", "FP32", "FP64", "INT32", "INT64"] = "BYTES"
    features: tuple[str, ...] = ()
    batched: bool = True

    def __post_init__(self) -> None:
        if (self.datatype != "BYTES") != bool(self.features):
            raise ValueError("`features` and a `datatype` of numbers (as FP32) belong together: their names, in order")

    @property
    def described(self) -> Described:
        """One row's tensor."""
        width = len(self.features) or 1
        return Described(self.name, self.datatype, (1, width) if self.batched else (width,))

    def of(self, row: Row) -> list[Any]:
        """Return the row's values.

        Raises:
            ModelError: `input_refused` when the row lacks its text or a number.
        """
        return self._numbers(row) if self.features else [text_in(row)]

    def _numbers(self, row: Row) -> list[Any]:
        values: list[Any] = feature_vector(row, self.features)
        if not all(map(math.isfinite, values)):  # JSON has no other numbers
            name = next(name for name, value in zip(self.features, values, strict=True) if not math.isfinite(value))
            raise ModelError("input_refused", f"feature {name!r} is missing or not finite")
        if self.datatype not in INTEGERS:
            return values
        for name, value in zip(self.features, values, strict=True):
            if value != int(value):
                raise ModelError("input_refused", f"feature {name!r} is no whole number: {value!r}")
        return [int(value) for value in values]


_STATUS: Mapping[int, StatusKind] = {400: "misconfigured"}
"""A row is looked at before the call: what is refused then is a name, type or shape, and those are the config's."""


class InferenceModel(ModelSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="inference_protocol"):
    """Asks `model` (in the version `version_path`, else the server's own choice) of the server at `base_url`: each row
    becomes the tensor `input`, and the tensor `output` is read. `http(s)://` speaks to `.../v2/models/MODEL/infer`, in
    binary where the server reads that, `grpc(s)://host:port` speaks gRPC (`pip install 'rheostat[grpc]'`).

    Floats are the probabilities of `labels`, in that order, or of the lines of `label_file`; with `softmax: true` they are
    logits. Text is one label. What the server declares is held to this at load, or when it comes back: names, datatypes,
    shapes, the number of labels. With `load: true` the server is told to load the model when it is not ready, which may
    take `load_timeout`; nothing unloads it. Where the server takes any number of rows, up to `max_rows` of a call go
    together, and one by one after a failure (never with `side_effects`).

    Data may be flat or nested; another number of values than the shape or the labels say, or one that is not finite, is
    `bad_output`. A 400 is the config's fault: a name, type or shape the server does not know. `api_key` is sent as a
    bearer token, `headers` as they are. `parallel` calls of one list are made at a time. After a 429 or 5xx with
    Retry-After the model is left alone for that time, at most `max_retry_after`. `on_status` says what a
    status means, by its kind of failure, where the usual table does not fit; gRPC's codes stand for HTTP's statuses.
    """

    base_url: str
    model: str
    version_path: str = ""
    input: InputTensor
    output: str
    softmax: bool = False
    label_file: str = ""
    load: bool = False
    load_timeout: Duration = Duration(60.0)
    max_rows: int = 32
    api_key: str = ""
    headers: Mapping[str, str] = {}
    parallel: int = 8
    max_retry_after: Duration = Duration(60.0)
    on_status: Mapping[int, StatusKind] = {}

    @property
    def check_url(self) -> str:
        """The protocol's own question whether the model is ready."""
        return "" if self._speaks_grpc else with_path(self.base_url, f"/v2/models/{quote(self.model, safe='')}/ready")

    @property
    def _speaks_grpc(self) -> bool:
        return urlsplit(self.base_url).scheme in PORTS

    def open(self, base: str) -> RemoteBackend:
        """Prepare the endpoint; nothing is sent yet.

        Raises:
            ConfigError: the URL, a name, a number or the label file cannot be used.
            MissingExtra: gRPC is asked for and not installed.
        """
        problems = [
            Problem(name, None, "expected a name that is not empty")
            for name, value in (("model", self.model), ("input.name", self.input.name), ("output", self.output))
            if not value
        ]
        for name, value in (("parallel", self.parallel), ("max_rows", self.max_rows)):
            if not 1 <= value <= 1024:
                problems.append(Problem(name, None, f"expected 1 to 1024, got {value}"))
        if self.softmax and not self.labels and not self.label_file:
            problems.append(Problem("labels", None, "expected the labels that the logits belong to, in order"))
        if not self.load_timeout > 0.0:
            problems.append(Problem("load_timeout", None, "expected more than 0"))
        if problems:
            raise ConfigError(problems)
        own = read_labels(Path(base) / self.label_file) if self.label_file else None
        headers = dict(self.headers)
        if self.api_key:
            headers["authorization"] = f"Bearer {self.api_key}"
        meaning = {**_STATUS, **self.on_status}
        transport: Transport
        if self._speaks_grpc:
            transport = GrpcTransport(self.base_url, self.model, self.version_path, headers, self.max_retry_after, meaning)
        else:
            upstream = Upstream(
                self.base_url, headers, self.max_retry_after, "base_url", on_status=meaning, resend=not self.side_effects
            )
            transport = HttpTransport(self.base_url, self.model, self.version_path, upstream)
        return InferenceClassifier(self, transport, settle_labels(self.labels, own, self.label_file))

    def __repr__(self) -> str:
        return f"InferenceModel(model={self.model!r}, base_url={masked_url(self.base_url)!r}, labels={self.labels!r})"


def read_labels(path: Path) -> list[str]:
    """Return the labels of a file, one a line, in order.

    Raises:
        ConfigError: it cannot be read, or holds none.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([Problem("label_file", None, f"cannot be read: {error}")]) from None
    labels = [line.strip() for line in lines if line.strip()]
    if not labels:
        raise ConfigError([Problem("label_file", None, f"{path} holds no labels; it has one a line")])
    return labels
