"""What an Open Inference Protocol server says of itself and of a model, and whether that fits what the config says."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from rheostat.tensors import FLOATS, Tensor

BINARY = "binary_tensor_data"
"""The extension's name in the server's metadata."""


class Described(NamedTuple):
    """An input or output as the server declares it; -1 in a shape is any size."""

    name: str
    datatype: str
    shape: tuple[int, ...]


class Metadata(NamedTuple):
    """A server's extensions and a model's tensors; no inputs, or no outputs, when it declares none."""

    extensions: tuple[str, ...] = ()
    inputs: tuple[Described, ...] = ()
    outputs: tuple[Described, ...] = ()


class Facts(NamedTuple):
    """What is known of the server until `until` (seconds on the event loop's clock): whether binary tensors are read,
    whether texts come without a second dimension, whether several rows may go in one call, and everything in which it
    differs from the config."""

    binary: bool = False
    flat_texts: bool = False
    stacks: bool = False
    wrong: tuple[str, ...] = ()
    until: float = math.inf


class Transport(Protocol):
    """Speaks the protocol with one model of one server."""

    async def infer(self, given: Tensor, output: str, timeout_s: float, *, binary: bool) -> Tensor:
        """Send one tensor and return the one that is named `output`.

        Raises:
            ModelError: the call failed, or no such tensor came back.
        """

    async def metadata(self, timeout_s: float) -> Metadata | None:
        """Return what the server says; None when it has nothing to say of this model.

        Raises:
            ModelError: it did not answer.
        """

    async def ready(self, timeout_s: float) -> None:
        """Return when the model is ready.

        Raises:
            ModelError: it is not.
        """

    async def control(self, action: str, timeout_s: float) -> None:
        """Have the server `load` or `unload` the model.

        Raises:
            ModelError: it does not.
        """

    async def aclose(self) -> None:
        """Close the connections."""


def facts_of(
    metadata: Metadata | None,
    given: Described,
    output: str,
    labels: Sequence[str] | None,
    *,
    batched: bool,
    softmax: bool,
) -> Facts:
    """Hold what the server says to what the config says; `given` is the input as one row of the config's would be."""
    if metadata is None:
        return Facts()
    wrong: list[str] = []
    flat_texts = stacks = False
    if metadata.inputs:
        found = _named(given.name, metadata.inputs)
        if found is None:
            wrong.append(f"it has no input {given.name!r}: set `input.name` to one of {_names(metadata.inputs)}")
        else:
            flat_texts = batched and given.datatype == "BYTES" and len(found.shape) == 1
            shape = given.shape[:1] if flat_texts else given.shape
            if found.datatype != given.datatype:
                wrong.append(f"its input {given.name!r} takes {found.datatype}: `input.datatype` says {given.datatype}")
            elif not _fits(shape, found.shape):
                wrong.append(f"its input {given.name!r} has the shape {list(found.shape)}, a row is {list(shape)}: "
                             "correct `input.features` or `input.batched`")  # fmt: skip
            stacks = batched and bool(found.shape) and found.shape[0] < 0
    if metadata.outputs:
        answered = _named(output, metadata.outputs)
        if answered is None:
            wrong.append(f"it has no output {output!r}: set `output` to one of {_names(metadata.outputs)}")
        else:
            wrong += _output_problems(answered, labels, softmax)
    return Facts(BINARY in metadata.extensions, flat_texts, stacks, tuple(wrong))


def described(given: Any) -> tuple[Described, ...]:
    """Return the tensors of a metadata list in JSON; what is none is left out."""
    if not isinstance(given, list):
        return ()
    return tuple(
        Described(str(each.get("name")), str(each.get("datatype")), tuple(each["shape"]))
        for each in given
        if isinstance(each, Mapping) and isinstance(each.get("shape"), list)
        and all(type(size) is int for size in each["shape"])
    )  # fmt: skip


def _output_problems(output: Described, labels: Sequence[str] | None, softmax: bool) -> list[str]:
    if output.datatype == "BYTES":
        return [f"its output {output.name!r} is text: `softmax` is for numbers"] if softmax else []
    if output.datatype not in FLOATS:
        return [f"its output {output.name!r} is {output.datatype}: expected floats, or one label as BYTES"]
    if not labels:
        return [f"its output {output.name!r} holds numbers: say in `labels` or `label_file` whose they are"]
    last = output.shape[-1] if output.shape else 1
    if last >= 0 and last != len(labels):
        return [f"its output {output.name!r} holds {last} numbers a row, and there are {len(labels)} labels"]
    return []


def _fits(shape: Sequence[int], declared: Sequence[int]) -> bool:
    return len(shape) == len(declared) and all(want in (size, -1) for size, want in zip(shape, declared, strict=True))


def _named(name: str, tensors: Sequence[Described]) -> Described | None:
    return next((each for each in tensors if each.name == name), None)


def _names(tensors: Sequence[Described]) -> list[str]:
    return [each.name for each in tensors]
