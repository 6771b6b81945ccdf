"""A torch model: its weights from safetensors files or a weight store, its module from the operator's own factory."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from msgspec import Meta

from rheostat.backends.labels import settle_labels
from rheostat.backends.onnx_outputs import read_matrix
from rheostat.backends.row_batches import answered
from rheostat.backends.torch_module import copied, fill
from rheostat.backends.torch_rehearsal import Memory
from rheostat.backends.torch_tensors import MappedFile, mapped
from rheostat.dotted import load_object
from rheostat.errors import ConfigError, MissingExtra, ModelError, Problem, WeightsError
from rheostat.pool.backend import Backend, ModelSettings, Reply, Row
from rheostat.pool.onnx_tokens import TokenInput, read_tokenizer
from rheostat.pool.preparing import Ready
from rheostat.weights import Tensor, TensorSet, read_tensors, with_delta

if TYPE_CHECKING:
    from rheostat.backends.onnx_inputs import Input

_TOKENS = ("input_ids", "attention_mask", "token_type_ids")


class TorchModel(ModelSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="torch"):
    """`module: package.module:factory` is called with `args` and returns an `nn.Module` (its parameters best on `meta`: the
    weights are put in afterwards); it may lie beside the config file. `weights` is a `.safetensors` file, or a model of a
    weight store (`STORE/models/NAME.json`); both are mapped, so that models and processes share the memory of equal
    tensors. `delta` names a file of `rheostat delta make`, put over `weights`; `head` a safetensors file whose tensors
    replace or complete those of `weights`. With `verify: hash` tensors whose hash is known (those of a store or a delta)
    are held against it when they are loaded, with `size` against their size only.

    Texts go through `tokenizer` (a tokenizer.json, cut at `max_length` tokens) to the arguments that `forward` has of
    `input_ids`, `attention_mask`, `token_type_ids`; rows with `features` to its first one as a float matrix, missing ones
    NaN; images as `prepare` makes arrays of them. What comes back, a matrix or something with `logits`, is read as `output`
    says. Labels stand in the config, or in the metadata of the weights or the head under `labels` as a JSON list, in the
    order of the outputs. `threads` compute one call, up to `chunk` rows at a time; torch has one such number for the whole
    process, so models that differ in it take turns setting it.

    A reload that changes only `weights`, `delta` or `head` loads the tensors that differ from those in service and shares
    the rest with them.
    """

    module: str
    weights: str
    args: Mapping[str, Any] = {}
    delta: str | None = None
    head: str | None = None
    verify: Literal["hash", "size"] = "hash"
    tokenizer: str | None = None
    max_length: Annotated[int, Meta(ge=2)] = 256
    features: tuple[str, ...] = ()
    output: Literal["logits", "probabilities"] = "logits"
    threads: Annotated[int, Meta(ge=1)] = 1
    chunk: Annotated[int, Meta(ge=1)] = 64

    takes_arrays: ClassVar[bool] = True

    def __post_init__(self) -> None:
        images = self.prepare is not None and self.prepare.image is not None
        if images + (self.tokenizer is not None) + bool(self.features) != 1:
            told = (
                "`tokenizer` or `features`, or `prepare` of images, says what a row is turned into: set exactly one of them"
            )
            raise ValueError(told)

    def open(self, base: str) -> Backend:
        """Make the module and put its weights in.

        Raises:
            ConfigError: a file or the factory is not what it should be; no code in a file of weights is run.
            MissingExtra: torch is not installed.
        """
        if find_spec("torch") is None:
            raise MissingExtra("backend torch", "torch")
        factory = load_object(self.module, base, "module")
        chosen = _chosen(self, base)
        module = _made(factory, self)
        try:
            values, files = mapped(chosen.tensors, self.verify == "hash")
            fill(module, values)
        except WeightsError as error:
            raise _refusal("weights", str(error)) from error
        module.eval()
        source = _source(self, module, base)
        return TorchClassifier(self, module, source, chosen, _Recipe.of(self, factory, base), files)


class _Recipe(NamedTuple):
    """All but its weights that a module and what it reads are made of."""

    factory: Any
    args: Mapping[str, Any]
    tokenizer: tuple[Any, ...]
    features: tuple[str, ...]

    @classmethod
    def of(cls, settings: TorchModel, factory: Any, base: str) -> _Recipe:
        if settings.tokenizer is None:
            return cls(factory, settings.args, (), settings.features)
        try:
            stat = Path(base, settings.tokenizer).stat()
        except OSError:
            return cls(factory, settings.args, (), ())
        return cls(factory, settings.args, (settings.max_length, stat.st_ino, stat.st_mtime_ns, stat.st_size), ())


class TorchClassifier:
    """Runs a module over rows of like size, away from autograd."""

    def __init__(
        self,
        settings: TorchModel,
        module: Any,
        source: Input,
        weights: TensorSet,
        recipe: _Recipe,
        files: Mapping[str, MappedFile],
    ) -> None:
        self.labels: tuple[str, ...] | None = _labels(settings, weights.metadata)
        self.probes = source.probes
        self._settings = settings
        self._module = module
        self._source = source
        self._loaded = {name: _mark(tensor) for name, tensor in weights.tensors.items()}
        self._recipe = recipe
        self._files = files
        self._memory = Memory()

    def predict(self, rows: Sequence[Row]) -> Sequence[Reply]:
        """Answer every row; a row the model cannot take fails alone."""
        return answered(rows, self._source, self._settings.chunk, self._run)

    def prepare(self, row: Row) -> Ready:
        """Return the row in the model's terms.

        Raises:
            ModelError: `input_refused`.
        """
        return Ready(self._source.prepare(row))

    def close(self) -> None:
        """Drop the module and its mappings; calls under way, and models that share them, keep theirs."""
        self._module = None
        self._files = {}

    def successor(self, settings: ModelSettings, base: str) -> Backend | None:
        """Return the model with the weights of `settings`: tensors that differ are loaded, the rest is shared with this one,
        which stays as it is. None when more than the weights differ, or the module cannot be taken apart safely.

        Raises:
            ConfigError: the new weights cannot be used.
        """
        module = self._module
        if module is None or not isinstance(settings, TorchModel):
            return None
        recipe = _Recipe.of(settings, load_object(settings.module, base, "module"), base)
        chosen = _chosen(settings, base)
        if recipe != self._recipe or chosen.tensors.keys() != self._loaded.keys():
            return None
        differing = {name: each for name, each in chosen.tensors.items() if _mark(each) != self._loaded[name]}
        other = copied(module, differing)
        if other is None:
            return None
        try:
            values, files = mapped(differing, settings.verify == "hash")
            fill(other, values, kept=chosen.tensors.keys() - differing.keys())
        except WeightsError as error:
            raise _refusal("weights", str(error)) from error
        new = TorchClassifier(settings, other, self._source, chosen, recipe, {**self._files, **files})
        new._memory = self._memory
        return new

    def rehearsal(self) -> Backend:
        """Return the model for its trial: what it has from the one before says what it said there to the same inputs."""
        trial = copy.copy(self)
        trial._module = self._memory.rehearsed(self._module)
        return trial

    def _run(self, items: Sequence[Any]) -> list[Reply]:
        import torch

        module = self._module
        if module is None:
            raise ModelError("unavailable", "the model is closed")
        if torch.get_num_threads() != self._settings.threads:
            torch.set_num_threads(self._settings.threads)
        feed = {name: torch.from_numpy(each) for name, each in self._source.feed(items).items()}
        with torch.inference_mode():
            said = module(**feed) if self._settings.tokenizer is not None else module(*feed.values())
            values = _matrix(said).float().numpy()
        if len(values) != len(items):
            raise ModelError("bad_output", f"expected {len(items)} lines of numbers, one a row, got {len(values)}")
        return read_matrix(values, self.labels or (), self._settings.output == "logits")


def _chosen(settings: TorchModel, base: str) -> TensorSet:
    """The weights that the settings name: the base, the difference over it, the head over both."""
    field = "weights"
    try:
        chosen = read_tensors(Path(base, settings.weights))
        if settings.delta is not None:
            field = "delta"
            chosen = with_delta(chosen, Path(base, settings.delta))
        if settings.head is not None:
            field = "head"
            head = read_tensors(Path(base, settings.head))
            chosen = TensorSet({**chosen.tensors, **head.tensors}, {**chosen.metadata, **head.metadata})
    except WeightsError as error:
        raise _refusal(field, str(error)) from error
    return chosen


def _made(factory: Any, settings: TorchModel) -> Any:
    import torch

    try:
        module = factory(**settings.args)
    except Exception as error:  # whatever the user's code raises
        raise _refusal("module", f"{settings.module} failed: {type(error).__name__}: {error}") from error
    if not isinstance(module, torch.nn.Module):
        told = "is called with `args` and has to return an nn.Module"
        raise _refusal("module", f"{settings.module} {told}, it returned {type(module).__name__}")
    return module


class _Argument(NamedTuple):
    """The one argument of a module over features, as `FeatureInput` wants it described."""

    name: str = "features"
    type: str = "tensor(float)"


def _source(settings: TorchModel, module: Any, base: str) -> Input:
    from rheostat.backends.onnx_inputs import ArrayInput, FeatureInput

    if settings.prepare is not None and settings.prepare.image is not None:
        return ArrayInput("image", _Argument().type, None)
    if settings.tokenizer is None:
        return FeatureInput([_Argument()], settings.features)
    takes = inspect.signature(module.forward).parameters
    names = [name for name in _TOKENS if name in takes]
    if "input_ids" not in names:
        told = f"forward of {settings.module} takes ({', '.join(takes)}); with a tokenizer it has to take `input_ids`"
        raise _refusal("module", f"{told} and may take `attention_mask` and `token_type_ids`")
    return TokenInput(read_tokenizer(Path(base, settings.tokenizer), settings.max_length), names)


def _labels(settings: TorchModel, metadata: Mapping[str, str]) -> tuple[str, ...]:
    import msgspec

    own = None
    if "labels" in metadata:
        try:
            own = msgspec.json.decode(metadata["labels"], type=list[str])
        except msgspec.DecodeError as error:
            raise _refusal("labels", f'the metadata of the weights: expected ["a", "b", ...]: {error}') from error
    labels = settle_labels(settings.labels, own, "the metadata of the weights")
    if not labels:
        raise _refusal("labels", "list them in the order of the outputs, here or in the metadata of the weights")
    return labels


def _mark(tensor: Tensor) -> tuple[Any, ...]:
    """What is equal for equal tensors: their hash where it is known, else where they lie."""
    return (tensor.dtype, tensor.shape, tensor.sha256 or tensor.identity)


def _matrix(said: Any) -> Any:
    if isinstance(said, Mapping) and "logits" in said:
        return said["logits"]
    logits = getattr(said, "logits", said)
    return logits[0] if isinstance(logits, tuple | list) and logits else logits


def _refusal(field: str, message: str) -> ConfigError:
    return ConfigError([Problem(field, None, message)])
