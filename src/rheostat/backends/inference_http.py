"""The Open Inference Protocol v2 over HTTP: tensors as JSON, or as bytes behind it where the server reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from rheostat.backends.endpoint import with_path
from rheostat.backends.inference_facts import Metadata, described
from rheostat.backends.reply import bad_output
from rheostat.backends.upstream import Upstream, encode
from rheostat.errors import ModelError
from rheostat.tensors import Tensor, TensorError
from rheostat.tensors.http_body import HEADER, read_tensors, split, written

SAYS_NOTHING = frozenset({400, 404, 405, 501})
"""Statuses of a server that has no such page, or no such model now."""
_EMPTY = b"{}"


class HttpTransport:
    """One model on one server; `upstream` brings the headers, what statuses mean, and the connections."""

    def __init__(self, base_url: str, model: str, version: str, upstream: Upstream) -> None:
        name = quote(model, safe="")
        at_version = f"/versions/{quote(version, safe='')}" if version else ""
        path = f"/v2/models/{name}{at_version}"
        self._upstream = upstream
        self._infer = upstream.at(with_path(base_url, f"{path}/infer"))
        self._ready = upstream.at(with_path(base_url, f"{path}/ready"))
        self._model = upstream.at(with_path(base_url, path))
        self._server = upstream.at(with_path(base_url, "/v2"))
        self._control = {
            action: upstream.at(with_path(base_url, f"/v2/repository/models/{name}/{action}"))
            for action in ("load", "unload")
        }

    async def infer(self, given: Tensor, output: str, timeout_s: float, *, binary: bool) -> Tensor:
        """Send one tensor and return the one that is named `output`."""
        try:
            objects, parts = written((given,), (binary,))
        except TensorError as error:
            raise ModelError("input_refused", str(error)) from None
        wanted: dict[str, Any] = {"name": output}
        if binary:
            wanted["parameters"] = {"binary_data": True}
        head = encode({"inputs": objects, "outputs": [wanted]})
        more = {HEADER: str(len(head)), "content-type": "application/octet-stream"} if parts else {}
        headers, content = await self._infer.exchange(b"".join((head, *parts)), timeout_s, more)
        try:
            front, rest = split(content, headers.get(HEADER))
            answer = self._infer.read_json(front)
            if not isinstance(answer, Mapping) or not isinstance(answer.get("outputs"), list):
                raise _hidden(self._infer, bad_output("an inference response with outputs", answer))
            return named(output, read_tensors(answer["outputs"], rest))
        except TensorError as error:
            raise _hidden(self._infer, ModelError("bad_output", str(error))) from None

    async def metadata(self, timeout_s: float) -> Metadata | None:
        """Return what the server says; None when it has no such page or no such model."""
        model = await _page(self._model, timeout_s)
        if model is None:
            return None
        server = await _page(self._server, timeout_s)
        named_extensions = server.get("extensions") if server is not None else None
        extensions = tuple(map(str, named_extensions)) if isinstance(named_extensions, list) else ()
        return Metadata(extensions, described(model.get("inputs")), described(model.get("outputs")))

    async def ready(self, timeout_s: float) -> None:
        """Return when the model is ready."""
        await self._ready.check(timeout_s)

    async def control(self, action: str, timeout_s: float) -> None:
        """Have the server load or unload the model."""
        await self._control[action].exchange(_EMPTY, timeout_s)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._upstream.aclose()


def named(output: str, tensors: Sequence[Tensor]) -> Tensor:
    """Return the tensor of this name.

    Raises:
        TensorError: there is none.
    """
    for tensor in tensors:
        if tensor.name == output:
            return tensor
    raise TensorError(f"expected one output named {output!r}, got {[tensor.name for tensor in tensors]}")


async def _page(page: Upstream, timeout_s: float) -> Mapping[str, Any] | None:
    try:
        _, content = await page.exchange(None, timeout_s)
        read = page.read_json(content)
    except ModelError as error:
        if error.upstream_status in SAYS_NOTHING:
            return None
        raise
    return read if isinstance(read, Mapping) else None


def _hidden(page: Upstream, error: ModelError) -> ModelError:
    hidden = page.hide(error)
    assert isinstance(hidden, ModelError)
    return hidden
