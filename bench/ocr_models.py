"""Recognisers of printed lines from the package index, and lines to try them on.

PP-OCRv4 (mobile) is taken from the wheel of `rapidocr-onnxruntime`, PP-OCRv6 (small) from that of `rapidocr` (both
Apache-2.0; PaddleOCR). Only the model files are taken out; nothing of either package is imported or installed.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.embeddings import CACHE
from rheostat.chance import chance
from rheostat.demo.data import Archive, fetch
from rheostat.pool.onnx_session import open_session

Tell = Callable[[str], None]
FOLDER = CACHE / "ocr"
V4 = Archive(
    requirement="rapidocr-onnxruntime==1.4.4",
    file="rapidocr_onnxruntime-1.4.4-py3-none-any.whl",
    sha256="971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf",
    size_mb=15,
)
V6 = Archive(
    requirement="rapidocr==3.10.0",
    file="rapidocr-3.10.0-py3-none-any.whl",
    sha256="2fc34e26cd0f48514804a94f8832283039c7334076bff60768b1fed9ad068050",
    size_mb=27,
)
_MEMBERS = {
    "v4": (V4, "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx"),
    "v6": (V6, "rapidocr/models/PP-OCRv6_rec_small.onnx"),
}
_FONTS = Path("/usr/share/fonts/truetype")
FACES = (
    "dejavu/DejaVuSans.ttf", "dejavu/DejaVuSerif.ttf", "dejavu/DejaVuSansMono.ttf", "liberation/LiberationSans-Regular.ttf",
    "liberation/LiberationSerif-Italic.ttf", "liberation/LiberationSansNarrow-Italic.ttf",
)  # fmt: skip
NOISE = ("clean", "worn", "poor")


def why_absent() -> str | None:
    """Return what to do when the fonts are not there, or None."""
    missing = [face for face in FACES if not (_FONTS / face).is_file()]
    return f"lines skipped: no {missing[0]} in {_FONTS} (Debian: fonts-dejavu, fonts-liberation)" if missing else None


def recogniser(name: str, tell: Tell) -> Path:
    """Return the ONNX file of `v4` or `v6`, fetched with pip the first time."""
    path = FOLDER / f"{name}.onnx"
    if not path.is_file():
        FOLDER.mkdir(parents=True, exist_ok=True)
        archive, member = _MEMBERS[name]
        with zipfile.ZipFile(fetch(archive, CACHE, tell)) as wheel:
            path.with_suffix(".part").write_bytes(wheel.read(member))
        path.with_suffix(".part").rename(path)
    return path


class Recogniser:
    """A recogniser as a Python callable: arrays (3, 48, width) in, texts out. The confidence is the mean of its characters'.

    Source of the reading: connectionist temporal classification (Graves et al. 2006), the best path.
    """

    def __init__(self, path: str) -> None:
        self._session = open_session(Path(path), 1, "path")
        characters = self._session.get_modelmeta().custom_metadata_map["character"].splitlines()
        self._characters = ["", *characters, " "]
        self._input = self._session.get_inputs()[0].name

    def __call__(self, rows: Sequence[Any]) -> list[dict[str, Any]]:
        """Read every line; lines of one width go together."""
        found: list[dict[str, Any]] = [{} for _ in rows]
        widths: dict[int, list[int]] = {}
        for place, row in enumerate(rows):
            widths.setdefault(row.shape[2], []).append(place)
        for places in widths.values():
            (values,) = self._session.run(None, {self._input: np.stack([rows[place] for place in places])})
            for place, line in zip(places, values, strict=True):
                found[place] = self._read(line)
        return found

    def _read(self, line: Any) -> dict[str, Any]:
        best, sure = line.argmax(axis=1), line.max(axis=1)
        kept = (best != 0) & np.concatenate([[True], best[1:] != best[:-1]])
        text = "".join(self._characters[code] for code in best[kept].tolist()).strip()
        confidence = float(min(sure[kept].mean(), 1.0)) if kept.any() else 0.0
        return {"label": text or "(nothing)", "confidence": confidence}


def lines(count: int) -> list[tuple[bytes, str, str, str]]:
    """Return rendered lines of Python's own documentation: (PNG, text, face, noise)."""
    from pydoc_data.topics import topics

    words = " ".join(" ".join(topics.values()).split()).split(" ")
    words = [word for word in words if word.isascii() and word.isprintable() and not set(word) & set("*`|\\_<>^~")]
    found = []
    for number in range(count):
        start = int(chance("line", str(number)) * (len(words) - 10))
        text = " ".join(words[start : start + 3 + int(chance("words", str(number)) * 4)])
        face, noise = FACES[number % len(FACES)], NOISE[number // len(FACES) % len(NOISE)]
        found.append((_rendered(text, face, noise, number), text, face, noise))
    return found


def _rendered(text: str, face: str, noise: str, seed: int) -> bytes:
    from PIL import Image, ImageDraw, ImageFilter, ImageFont

    rng = np.random.default_rng(seed)
    font = ImageFont.truetype(str(_FONTS / face), 28)
    width = int(font.getlength(text)) + 24
    image = Image.new("L", (width, 48), 245)
    ImageDraw.Draw(image).text((12, 6), text, font=font, fill=25)
    if noise != "clean":
        small, blur, spread = (0.55, 0.7, 14.0) if noise == "worn" else (0.36, 1.0, 26.0)
        turned = image.rotate(float(rng.uniform(-0.6, 0.6)), fillcolor=245, resample=Image.Resampling.BICUBIC)
        tiny = turned.filter(ImageFilter.GaussianBlur(blur)).resize((max(1, int(width * small)), max(1, int(48 * small))))
        pixels = np.asarray(tiny, dtype=np.float64) + rng.normal(0, spread, (tiny.height, tiny.width))
        image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()
