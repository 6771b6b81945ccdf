"""What is kept of a request: enough to decide it again, nothing that was not asked for."""

from __future__ import annotations

from typing import Any

import msgspec
import xxhash

from rheostat.errors import FAILURES, ClientError, ModelError, RheostatError
from rheostat.types import InputSummary, Request

_HEADS_PLAIN = (("png", b"\x89PNG"), ("jpeg", b"\xff\xd8\xff"), ("webp", b"RIFF"), ("gif", b"GIF8"), ("bmp", b"BM"))
_HEADS_BASE64 = (("png", b"iVBORw"), ("jpeg", b"/9j/"), ("webp", b"UklGR"), ("gif", b"R0lGOD"), ("bmp", b"Qk"))


def summary(request: Request, raw: bool) -> InputSummary:
    """Summarise the input: kind, length in characters, hash; the text itself only when `raw`, an image never."""
    data = request.data
    if isinstance(data, dict) and isinstance(data.get("image"), str | bytes):
        return _image_summary(data, raw)
    if isinstance(data, str):
        body = data.encode("utf-8", "surrogatepass")
        return InputSummary("text", len(data), xxhash.xxh3_64_hexdigest(body), data if raw else None)
    body = encoded(data)
    text = body.decode("utf-8", "replace") if raw else None
    return InputSummary("features" if isinstance(data, dict) else type(data).__name__, len(body),
                        xxhash.xxh3_64_hexdigest(body), text)  # fmt: skip


def _image_summary(data: dict[str, Any], raw: bool) -> InputSummary:
    """Name the format, count the bytes and hash the row; with `raw` what stands beside the image is kept."""
    image = data["image"]
    file = image if isinstance(image, bytes) else image.encode("utf-8", "surrogatepass")
    hashed = xxhash.xxh3_64(file)
    beside = {name: value for name, value in data.items() if name != "image"}
    hashed.update(encoded(beside))
    known, length = _HEADS_PLAIN, len(file)
    if isinstance(image, str):
        known, length = _HEADS_BASE64, 3 * len(file) // 4 - file[-2:].count(b"=")
    format_ = next((name for name, head in known if file.startswith(head)), "unknown")
    text = encoded(beside).decode("utf-8", "replace") if raw and beside else None
    return InputSummary(f"image/{format_}", length, hashed.hexdigest(), text)


def encoded(data: Any) -> bytes:
    """Return `data` as JSON bytes; what JSON does not know is written as text."""
    try:
        return msgspec.json.encode(data, enc_hook=str)
    except (UnicodeEncodeError, ValueError, TypeError):
        return repr(data).encode("utf-8", "backslashreplace")


def status_of(error: RheostatError | None, level: int, fallback_reason: str) -> str:
    """Name how a request ended, in the words of `RouteRecord.status`."""
    if error is None:
        return "degraded" if level >= 3 or fallback_reason.startswith("router_unavailable") else "ok"
    if isinstance(error, ModelError):
        if error.kind == "cancelled":
            return "cancelled"
        return "rejected" if FAILURES[error.kind].status < 500 else "error"
    return "rejected" if isinstance(error, ClientError) else "error"
