"""OpenAI's own client library, `openai`, from a folder of its own: Rheostat itself does not need it.

pip install --no-deps --target ~/.cache/rheostat/openai -r requirements/openai.txt
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

FOLDER = Path(os.environ.get("RHEOSTAT_OPENAI", "~/.cache/rheostat/openai")).expanduser()
WANTED = "pip install --no-deps --target ~/.cache/rheostat/openai -r requirements/openai.txt"


def installed() -> bool:
    """Return whether the library is there."""
    return (FOLDER / "openai").is_dir()


@contextmanager
def client() -> Iterator[ModuleType]:
    """Give `openai`, which loads parts of itself when they are first used; afterwards its folder is looked in no more."""
    sys.path.append(str(FOLDER))
    try:
        yield importlib.import_module("openai")
    finally:
        sys.path.remove(str(FOLDER))
