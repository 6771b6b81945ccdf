"""What tells that a model or scorer is still the one that was opened."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

Stamp = tuple[object, ...]


def stamp(settings: Struct, base: str) -> Stamp:
    """Return what must be equal for a part to be kept: its settings and the state of every file they name."""
    files = [(field, stat.st_mtime_ns, stat.st_size, stat.st_ino) for field, _, stat in _files(settings, base)]
    return (settings, *files)


def file_bytes(settings: Struct, base: str) -> int:
    """Return how large the files are that the settings name, in bytes; with each, those beside it whose names begin with
    its name (an ONNX file's external data)."""
    found: dict[str, int] = {}
    for _, path, _ in _files(settings, base):
        if path.is_file():
            with os.scandir(path.parent) as entries:
                found |= {each.path: each.stat().st_size for each in entries if each.name.startswith(path.name)}
    return sum(found.values())


def _files(settings: Struct, base: str) -> list[tuple[str, Path, os.stat_result]]:
    found = []
    for field in settings.__struct_fields__:
        value = getattr(settings, field)
        if isinstance(value, str) and value and len(value) < 1024:
            path = Path(base) / value
            try:
                found.append((field, path, path.stat()))
            except (OSError, ValueError):
                continue
    return found
