"""An image file as a row, as a client would send it."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any, Final

MOST_BYTES: Final = 64_000_000


def image_row(data: Path, name: Any) -> dict[str, str]:
    """Return the row of an image file that a line of the file `data` names; it lies in the folder of `data` or below it.

    Raises:
        ValueError: it cannot be read, or lies elsewhere.
    """
    if not isinstance(name, str) or not name:
        raise ValueError("the name of the image file is missing")
    folder = data.parent.resolve()
    path = Path(folder, name)
    try:
        if not path.resolve().is_relative_to(folder):
            raise ValueError(f"{name!r} lies outside the folder of {data.name}")
        return read_image(path)
    except OSError as error:
        raise ValueError(f"{name!r} cannot be read: {error.strerror or error}") from None


def read_image(path: Path) -> dict[str, str]:
    """Return the row of an image file.

    Raises:
        OSError: it cannot be read.
        ValueError: it is larger than an image may be.
    """
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"{path.name!r} has more than {MOST_BYTES} bytes")
    return {"image": b64encode(path.read_bytes()).decode()}
