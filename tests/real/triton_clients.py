"""NVIDIA's own client library, `tritonclient`, from a folder of its own: Rheostat itself does not need it.

pip install --no-deps --target ~/.cache/rheostat/tritonclient -r requirements/tritonclient.txt
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType

FOLDER = Path(os.environ.get("RHEOSTAT_TRITONCLIENT", "~/.cache/rheostat/tritonclient")).expanduser()
WANTED = "pip install --no-deps --target ~/.cache/rheostat/tritonclient -r requirements/tritonclient.txt"


def installed() -> bool:
    """Return whether the library is there."""
    return (FOLDER / "tritonclient").is_dir()


def client(name: str) -> ModuleType:
    """Return `tritonclient.NAME`. Its folder is looked in for this import only: other libraries take no parts of it."""
    sys.path.append(str(FOLDER))
    try:
        return importlib.import_module(f"tritonclient.{name}")
    finally:
        sys.path.remove(str(FOLDER))
