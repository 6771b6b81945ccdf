"""What is kept of a request: enough to decide it again, nothing that was not asked for."""

from __future__ import annotations

from typing import Any

import msgspec
import xxhash

from rheostat.errors import FAILURES, ClientError, ModelError, RheostatError
from rheostat.types import InputSummary, Request


def summary(request: Request, raw: bool) -> InputSummary:
    """Summarise the input: kind, length in characters, hash; the text itself only when `raw`."""
    data = request.data
    if isinstance(data, str):
        body = data.encode("utf-8", "surrogatepass")
        return InputSummary("text", len(data), xxhash.xxh3_64_hexdigest(body), data if raw else None)
    body = encoded(data)
    text = body.decode("utf-8", "replace") if raw else None
    return InputSummary("features" if isinstance(data, dict) else type(data).__name__, len(body),
                        xxhash.xxh3_64_hexdigest(body), text)  # fmt: skip


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
