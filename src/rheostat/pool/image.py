"""Images from clients as arrays: whatever is sent becomes one, or a refusal, in bounded time and memory."""

from __future__ import annotations

import binascii
import io
from base64 import b64encode
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from PIL import (
    BmpImagePlugin,
    GifImagePlugin,
    Image,
    ImageOps,
    JpegImagePlugin,
    PngImagePlugin,
    UnidentifiedImageError,
    WebPImagePlugin,
)

from rheostat.errors import ModelError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rheostat.pool.preparing import ImageSettings

# Named once, so that they are registered before several threads decode at a time.
_PLUGINS = (BmpImagePlugin, GifImagePlugin, JpegImagePlugin, PngImagePlugin, WebPImagePlugin)
FORMATS: Final = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
_MOST_SCANS: Final = 64
"""A JPEG is decoded once for each scan it has; good ones have about ten, and a small file can have thousands."""
_LONGEST_RATIO: Final = 64  # of width to height where a size keeps the shape
_RESAMPLE: Final = {
    "nearest": Image.Resampling.NEAREST, "bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC,
}  # fmt: skip


class ImageInput:
    """Decodes, shapes and scales one image. Called from several threads at a time.

    `probes` are rows for the contract check: white, black and noise.
    """

    def __init__(self, settings: ImageSettings) -> None:
        self._settings = settings
        self._mode = "L" if settings.colour == "grey" else "RGB"
        scale = np.float32(settings.scale)
        mean, std = (np.asarray(value, dtype=np.float32) for value in (settings.mean, settings.std))
        self._times, self._plus = scale / std, -mean / std
        self.probes = tuple({"image": b64encode(each).decode()} for each in _probes(settings.size))

    def prepare(self, row: Any) -> NDArray[np.float32]:
        """Return the row's image as an array.

        Raises:
            ModelError: `input_refused` when there is no image that can be read, `input_too_large` when it is too large.
        """
        raw = image_bytes(row)
        try:
            image = self._decoded(raw)
        except ModelError:
            raise
        except UnidentifiedImageError:
            raise _refused("`image` is no PNG, JPEG, WebP, GIF or BMP file") from None
        except Exception as error:  # a decoder raises whatever it likes for a broken file
            raise _refused(f"the image cannot be decoded: {type(error).__name__}: {error!s:.120}") from None
        return self._array(image)

    def _decoded(self, raw: bytes) -> Image.Image:
        if raw[:2] == b"\xff\xd8" and raw.count(b"\xff\xda") > _MOST_SCANS:
            raise _refused(f"a JPEG of more than {_MOST_SCANS} scans")
        most = self._settings.max_pixels
        with Image.open(io.BytesIO(raw), formats=FORMATS) as image:
            width, height = image.size
            if width * height > most:
                raise ModelError("input_too_large", f"the image has {width} x {height} pixels, at most {most} are taken")
            if image.mode[0] in "IF":
                raise _refused("an image of more than 8 bits a colour; send it with 8")
            image.load()
            return self._shaped(_opaque(image))

    def _shaped(self, image: Image.Image) -> Image.Image:
        image = image.convert(self._mode)
        settings = self._settings
        size, way = _whole(settings.size, image.size), _RESAMPLE[settings.resample]
        if image.size == size:
            return image
        if settings.fit == "pad":
            return ImageOps.pad(image, size, way, color=255 if self._mode == "L" else (255, 255, 255))
        if settings.fit == "crop":
            return ImageOps.fit(image, size, way)
        return image.resize(size, way)

    def _array(self, image: Image.Image) -> NDArray[np.float32]:
        values = np.asarray(image, dtype=np.uint8)
        if values.ndim == 2:
            values = values[:, :, None]
        elif self._settings.colour == "bgr":
            values = values[:, :, ::-1]
        scaled: NDArray[np.float32] = values * self._times + self._plus
        if self._settings.layout == "flat":
            scaled = scaled.reshape(-1)
        elif self._settings.layout == "chw":
            scaled = np.ascontiguousarray(scaled.transpose(2, 0, 1))
        return scaled


def image_bytes(row: Any) -> bytes:
    """Return the file in a row's `image`.

    Raises:
        ModelError: `input_refused` when there is none.
    """
    value = row.get("image") if isinstance(row, Mapping) else None
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise _refused("expected an object with an `image`: a PNG, JPEG, WebP, GIF or BMP file in base64")
    try:
        return binascii.a2b_base64(value, strict_mode=True)
    except (ValueError, binascii.Error):
        hint = "a URL was sent: images are not fetched" if "://" in value[:16] else "without line breaks"
        hint = "send what follows the comma of a data: URL" if value.startswith("data:") else hint
        raise _refused(f"`image` is no base64 ({hint})") from None


def _opaque(image: Image.Image) -> Image.Image:
    if "transparency" not in image.info and "A" not in image.getbands():
        return image
    seen = image.convert("RGBA")
    ground = Image.new("RGBA", seen.size, (255, 255, 255, 255))
    ground.alpha_composite(seen)
    return ground


def _whole(wanted: tuple[int, int], given: tuple[int, int]) -> tuple[int, int]:
    """Fill in the side that keeps the shape."""
    width, height = wanted
    if width and height:
        return width, height
    if max(given) > _LONGEST_RATIO * min(given):
        raise ModelError("input_too_large", f"one side is more than {_LONGEST_RATIO} times as long as the other")
    if height:
        return max(1, round(given[0] * height / given[1])), height
    return width, max(1, round(given[1] * width / given[0]))


def _probes(size: tuple[int, int]) -> list[bytes]:
    width, height = (side or 2 * max(size) for side in size)
    noise = np.random.default_rng(0).integers(0, 256, (min(height, 256), min(width, 256), 3), dtype=np.uint8)
    images = [Image.new("RGB", (width, height), shade) for shade in ("white", "black")]
    files = []
    for image in [*images, Image.fromarray(noise)]:
        file = io.BytesIO()
        image.save(file, "PNG")
        files.append(file.getvalue())
    return files


def _refused(told: str) -> ModelError:
    return ModelError("input_refused", told)
