"""Images from clients: what a model gets of them, and what becomes of hostile ones."""

from __future__ import annotations

import io
import random
import struct
import time
import tracemalloc
import zlib
from base64 import b64encode
from typing import Any

import numpy as np
import pytest
from PIL import Image

from rheostat.errors import ModelError
from rheostat.pool.image import FORMATS, ImageInput
from rheostat.pool.preparing import ImageSettings

GRADIENT = np.add.outer(np.arange(24), np.arange(32)).astype(np.uint8) * 4
COLOURS = np.dstack([GRADIENT, GRADIENT[::-1], np.full_like(GRADIENT, 7)])


def file_of(image: Any, form: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(file, form, **options)
    return file.getvalue()


def row(raw: bytes) -> dict[str, str]:
    return {"image": b64encode(raw).decode()}


def taken(raw: bytes, **settings: Any) -> Any:
    return ImageInput(ImageSettings(**settings)).prepare(row(raw))


def refused(value: Any, kind: str = "input_refused", **settings: Any) -> str:
    with pytest.raises(ModelError) as told:
        ImageInput(ImageSettings(size=(8, 8), **settings)).prepare(value)
    assert told.value.kind == kind
    return str(told.value)


def test_a_grey_image_of_the_right_size_is_its_pixels_over_255() -> None:
    array = taken(file_of(GRADIENT), size=(32, 24), colour="grey")
    assert array.dtype == np.float32
    assert array.shape == (1, 24, 32)
    assert np.array_equal(array[0], (GRADIENT * np.float32(1 / 255)).astype(np.float32))


@pytest.mark.parametrize(("layout", "shape"), [("chw", (3, 24, 32)), ("hwc", (24, 32, 3)), ("flat", (24 * 32 * 3,))])
def test_layouts_and_the_order_of_colours(layout: Any, shape: tuple[int, ...]) -> None:
    array = taken(file_of(COLOURS), size=(32, 24), layout=layout, scale=1.0)
    assert array.shape == shape
    assert array.dtype == np.float32
    expected = COLOURS.astype(np.float32)
    assert np.array_equal(array, expected.transpose(2, 0, 1) if layout == "chw" else expected.reshape(shape))
    turned = taken(file_of(COLOURS), size=(32, 24), layout="hwc", colour="bgr", scale=1.0)
    assert np.array_equal(turned, expected[:, :, ::-1])


def test_mean_and_spread_are_of_each_colour() -> None:
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    array = taken(file_of(COLOURS), size=(32, 24), mean=mean, std=std)
    for place in range(3):
        assert np.allclose(array[place], (COLOURS[:, :, place] / 255 - mean[place]) / std[place], atol=1e-5)
    inverted = taken(file_of(GRADIENT), size=(32, 24), colour="grey", scale=-1 / 255, mean=-1.0)
    assert np.allclose(inverted[0], 1 - GRADIENT / 255, atol=1e-6)


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_is_read(form: str) -> None:
    lossless = {"WEBP": {"lossless": True}, "JPEG": {"quality": 95}}.get(form, {})
    array = taken(file_of(GRADIENT, form, **lossless), size=(32, 24), colour="grey", scale=1.0)
    assert np.abs(array[0] - GRADIENT).max() <= (6 if form == "JPEG" else 0)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr"])
def test_images_of_every_kind_of_colour_are_read(mode: str) -> None:
    form = "JPEG" if mode in ("CMYK", "YCbCr") else "PNG"
    image = Image.fromarray(COLOURS).convert(mode)
    assert taken(file_of(image, form), size=(5, 4)).shape == (3, 4, 5)


def test_what_is_transparent_is_white_and_strokes_stay() -> None:
    drawn = np.zeros((8, 8, 4), np.uint8)
    drawn[2:4, 2:4, 3] = 255  # black strokes on a transparent ground, as a browser's canvas gives them
    array = taken(file_of(drawn), size=(8, 8), colour="grey")[0]
    assert array[0, 0] == 1.0
    assert array[2, 2] == 0.0


def test_another_shape_is_stretched_padded_or_cropped() -> None:
    wide = np.zeros((10, 40), np.uint8)
    wide[:, 20:] = 200
    stretched = taken(file_of(wide), size=(10, 10), colour="grey", scale=1.0)[0]
    padded = taken(file_of(wide), size=(10, 10), colour="grey", scale=1.0, fit="pad")[0]
    cropped = taken(file_of(wide), size=(10, 10), colour="grey", scale=1.0, fit="crop", resample="nearest")[0]
    assert stretched[5, 1] == 0
    assert stretched[5, 8] == 200
    assert padded[0, 0] == padded[9, 9] == 255
    assert padded[5, 1] == 0
    assert cropped.tolist() == wide[:, 15:25].tolist()


def test_a_size_with_a_zero_keeps_the_shape_of_a_line_of_text() -> None:
    assert taken(file_of(np.zeros((24, 200), np.uint8)), size=(0, 48)).shape == (3, 48, 400)
    assert taken(file_of(np.zeros((24, 200), np.uint8)), size=(100, 0)).shape == (3, 12, 100)


def test_a_line_far_too_long_is_refused() -> None:
    with pytest.raises(ModelError, match="64 times") as told:
        taken(file_of(np.zeros((2, 200), np.uint8)), size=(0, 48))
    assert told.value.kind == "input_too_large"


def test_of_an_animation_the_first_picture_counts() -> None:
    frames = [Image.new("L", (6, 6), shade) for shade in (10, 200, 90)]
    for form in ("GIF", "WEBP"):
        raw = file_of(
            frames[0], form, save_all=True, append_images=frames[1:], **({"lossless": True} if form == "WEBP" else {})
        )
        assert np.abs(taken(raw, size=(6, 6), colour="grey", scale=1.0) - 10).max() <= 1


def test_what_is_no_image_is_refused_with_a_hint() -> None:
    assert "an object with an `image`" in refused("text")
    assert "an object with an `image`" in refused({"picture": "AAAA"})
    assert "images are not fetched" in refused({"image": "https://example.org/cat.png"})
    assert "comma of a data: URL" in refused({"image": f"data:image/png;base64,{row(file_of(GRADIENT))['image']}"})
    assert "no PNG" in refused({"image": "/etc/passwd+="[:12]})
    assert "no PNG" in refused({"image": ""})
    assert "no PNG" in refused(row(b"%PDF-1.7 not an image"))
    assert "no base64" in refused({"image": "iVBO\nRw=="})
    assert "8 bits" in refused(row(file_of(Image.new("I;16", (4, 4)))))


@pytest.mark.parametrize("form", ["TIFF", "PPM", "ICO", "TGA", "PDF", "EPS"])
def test_other_formats_are_not_even_tried(form: str) -> None:
    refused(row(file_of(Image.fromarray(COLOURS), form)))


def png_header(width: int, height: int) -> bytes:
    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(bytes(100_000))) + chunk(b"IEND", b"")


def webp_header(width: int, height: int) -> bytes:
    raw = bytearray(file_of(Image.new("RGB", (16, 16)), "WEBP", lossless=True, exif=b"Exif\0\0data"))
    raw[24:27], raw[27:30] = (width - 1).to_bytes(3, "little"), (height - 1).to_bytes(3, "little")
    return bytes(raw)


def gif_header(width: int, height: int) -> bytes:
    size = struct.pack("<HH", width, height)
    return b"GIF89a" + size + b"\x00\x00\x00,\x00\x00\x00\x00" + size + b"\x00\x02\x00;"


@pytest.mark.parametrize("raw", [
    png_header(20_000, 2_000), png_header(60_000, 60_000), webp_header(12_000, 12_000),
gif_header(60_000, 2_000),
    b"BM" + struct.pack("<IHHIIiiHHIIiiII", 54, 0, 0, 54, 40, 40_000, 30_000, 1, 24, 0, 0, 0, 0, 0, 0),
])  # fmt: skip
def test_a_bomb_is_refused_from_its_header(raw: bytes) -> None:
    source = ImageInput(ImageSettings(size=(8, 8)))
    tracemalloc.start()
    began = time.process_time()
    with pytest.raises(ModelError) as told:
        source.prepare(row(raw))
    assert told.value.kind in ("input_too_large", "input_refused")
    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    assert time.process_time() - began < 1.0
    tracemalloc.stop()


def test_the_limit_of_pixels_is_the_settings() -> None:
    assert taken(file_of(GRADIENT), size=(8, 8), max_pixels=32 * 24).shape == (3, 8, 8)
    assert "32 x 24" in refused(row(file_of(GRADIENT)), "input_too_large", max_pixels=32 * 24 - 1)


def test_a_jpeg_with_thousands_of_scans_is_refused_undecoded() -> None:
    raw = file_of(np.tile(COLOURS, (20, 20, 1)), "JPEG", progressive=True)
    scan = raw[raw.rfind(b"\xff\xda") : -2]
    assert "scans" in refused(row(raw[:-2] + scan * 5_000 + b"\xff\xd9"))
    assert taken(raw, size=(8, 8)).shape == (3, 8, 8)


def _mutated(raw: bytes, random_: random.Random) -> bytes:
    body = bytearray(raw)
    for _ in range(random_.choice((1, 1, 2, 8, 40))):
        way, at = random_.randrange(5), random_.randrange(len(body))
        if way == 0:
            body[at] = random_.randrange(256)
        elif way == 1:
            body[at : at + 4] = random_.choice((b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\x7f\xff\xff\xff"))
        elif way == 2:
            del body[at:]
        elif way == 3:
            body[at:at] = random_.randbytes(random_.randrange(1, 50))
        else:
            del body[at : at + random_.randrange(1, 20)]
        if not body:
            return b""
    return bytes(body)


@pytest.mark.parametrize("form", FORMATS)
def test_whatever_is_sent_becomes_an_array_or_a_refusal(form: str) -> None:
    random_ = random.Random(form)
    source = ImageInput(ImageSettings(size=(8, 8), max_pixels=1_000_000))
    good = [file_of(COLOURS, form), file_of(GRADIENT, form), file_of(Image.fromarray(COLOURS).convert("P"), "PNG")]
    if form == "JPEG":
        good.append(file_of(COLOURS, form, progressive=True))
    answered = 0
    for _ in range(300):
        try:
            array = source.prepare(row(_mutated(random_.choice(good), random_)))
        except ModelError as error:
            assert error.kind in ("input_refused", "input_too_large")  # noqa: PT017
        else:
            assert array.shape == (3, 8, 8)
            assert np.isfinite(array).all()
            answered += 1
    assert 0 < answered < 300


@pytest.mark.parametrize(("settings", "field"), [
    ({"size": (0, 0)}, "size"), ({"size": (-1, 5)}, "size"), ({"size": (9000, 5)}, "size"),
    ({"size": (0, 5), "fit": "pad"}, "fit"), ({"size": (5, 5), "colour": "grey", "mean": (1.0, 1.0, 1.0)}, "mean"),
    ({"size": (5, 5), "std": 0.0}, "std"), ({"size": (5, 5), "std": (1.0, 0.0, 1.0)}, "std"),
])  # fmt: skip
def test_settings_that_mean_nothing_are_refused(settings: Any, field: str) -> None:
    with pytest.raises(ValueError, match=f"^`{field}`"):
        ImageSettings(**settings)


@pytest.mark.parametrize(("size", "shape"), [((28, 28), (3, 28, 28)), ((0, 48), (3, 48, 96)), ((600, 400), (3, 400, 600))])
def test_probes_are_images_that_the_model_can_be_tried_on(size: tuple[int, int], shape: tuple[int, ...]) -> None:
    source = ImageInput(ImageSettings(size=size))
    arrays = [source.prepare(probe) for probe in source.probes]
    assert arrays[0].shape == arrays[1].shape == shape
    assert (arrays[0] == 1.0).all()
    assert (arrays[1] == 0.0).all()
    assert arrays[2].std() > 0.1
