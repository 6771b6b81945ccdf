"""What is done to a row before its model gets it, as the config says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple, Protocol, runtime_checkable

from msgspec import Meta, Struct

from rheostat.errors import ConfigError, MissingExtra, Problem

Prepare = Callable[[Any], Any]
"""Takes a row as the client sent it, returns it as the model takes it; raises ModelError when the row is not usable."""
Triple = tuple[float, float, float]
_WIDEST = 8_192


class Ready(NamedTuple):
    """A row that was prepared with the model's own means."""

    value: Any


@runtime_checkable
class Preparing(Protocol):
    """A backend that can do the first part of its work, such as cutting a text into tokens, by itself; optional."""

    def prepare(self, row: Any) -> Ready:
        """Return the row ready for `predict`, which takes such rows as well as others; called from any thread.

        Raises:
            ModelError: `input_refused`.
        """


class ImageSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row's `image` (a PNG, JPEG, WebP, GIF or BMP file in base64) becomes an array of float32.

    `size` is width and height in pixels; a 0 keeps the shape of the image, as recognisers of text lines want it. `fit` says
    what happens to another shape: `stretch` it, `pad` it with white, or `crop` the middle. `colour` is what the model knows:
    `grey`, `rgb`, or `bgr`; transparent parts count as white. Each value v of 0 to 255 becomes (v * `scale` - `mean`) /
    `std`, with one number for all colours or one for each. `layout` is the order of the array: `chw` (colours first), `hwc`,
    or `flat` (one row of numbers, pixel after pixel). An image of more than `max_pixels` is refused before it is decoded.
    It needs `pip install 'rheostat[image]'`.
    """

    size: tuple[int, int]
    fit: Literal["stretch", "pad", "crop"] = "stretch"
    resample: Literal["nearest", "bilinear", "bicubic"] = "bilinear"
    colour: Literal["grey", "rgb", "bgr"] = "rgb"
    scale: float = 1 / 255
    mean: float | Triple = 0.0
    std: float | Triple = 1.0
    layout: Literal["chw", "hwc", "flat"] = "chw"
    max_pixels: Annotated[int, Meta(ge=1, le=80_000_000)] = 16_777_216

    def __post_init__(self) -> None:
        if not all(0 <= side <= _WIDEST for side in self.size) or self.size == (0, 0):
            raise ValueError(f"`size` is [width, height] in pixels of 1 to {_WIDEST}, one of them may be 0, got {self.size}")
        if 0 in self.size and self.fit != "stretch":
            raise ValueError("`fit` says what happens to another shape, and a `size` with 0 keeps the shape: remove `fit`")
        for name, value in (("mean", self.mean), ("std", self.std)):
            if self.colour == "grey" and isinstance(value, tuple):
                raise ValueError(f"`{name}` has three numbers, and a grey image has one for each pixel: give one number")
        if 0.0 in (self.std if isinstance(self.std, tuple) else (self.std,)):
            raise ValueError("`std` is divided by and must not be 0")


class PrepareSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rows are prepared before the model gets them: an `image` is decoded into an array, or, with `tokens`, a text is cut by
    the model's own `tokenizer`.

    With `threads` (up to 16) this is done in threads of its own, while the batch before computes, which needs `batch`; with
    0 in the model's own call. The default is 1 for a model with `batch`, else 0.
    """

    image: ImageSettings | None = None
    tokens: bool = False
    threads: int | None = None

    def __post_init__(self) -> None:
        if (self.image is not None) == self.tokens:
            raise ValueError("`image` or `tokens` says what is prepared: set exactly one of them")
        if self.threads is not None and not 0 <= self.threads <= 16:
            raise ValueError(f"`threads` must lie between 0 and 16, got {self.threads}")
        if self.tokens and self.threads == 0:
            raise ValueError("`threads` 0 is how a model cuts its texts anyway: remove `prepare`, or set 1")

    def open(self, backend: object) -> tuple[Prepare, tuple[Any, ...] | None]:
        """Return what prepares a row, and rows to try it on (None: any text).

        Raises:
            ConfigError: the model has no tokenizer in this process.
            MissingExtra: Pillow is not installed.
        """
        if self.image is None:
            if not isinstance(backend, Preparing):
                told = "this model cuts no texts into tokens in this process: remove it, or give an onnx model a `tokenizer`"
                raise ConfigError([Problem("prepare.tokens", None, told)])
            return backend.prepare, None
        try:
            from rheostat.pool.image import ImageInput
        except ImportError as error:
            raise MissingExtra("prepare.image", "image") from error
        source = ImageInput(self.image)
        return source.prepare, source.probes
