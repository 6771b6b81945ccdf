"""A user's own object by its dotted name, also from the folder of the config file."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from threading import RLock
from types import ModuleType
from typing import Any

from rheostat.errors import ConfigError, Problem

_PATH_LOCK = RLock()  # sys.path belongs to the whole process
_STAMP = "__rheostat_stamp__"


def load_object(dotted: str, base: str, field: str) -> Any:
    """Return what `package.module:name` names; `name` may itself have dots.

    A module that lies in the folder `base` (the config file's) is found before an installed one of the same name, as
    with `python script.py`, and is read again when its file changed. `sys.path` is as before afterwards, so such a
    module must import its neighbours at its top, not inside a function.

    Args:
        field: the config field that holds `dotted`, named in errors.

    Raises:
        ConfigError: the name has another shape, the module cannot be imported, or it has no such name.
    """
    module_name, colon, path = dotted.partition(":")
    if not colon or not all(part.isidentifier() for part in [*module_name.split("."), *path.split(".")]):
        raise _refusal(field, f"expected package.module:name, got {dotted!r}")
    found: Any = _load_module(module_name, base, field)
    for part in path.split("."):
        if not hasattr(found, part):
            near = get_close_matches(part, dir(found), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise _refusal(field, f"{module_name} has no {part!r}{hint}")
        found = getattr(found, part)
    return found


def _load_module(name: str, base: str, field: str) -> ModuleType:
    with _PATH_LOCK, _first_on_path(base):
        source = _local_source(name, base)
        if source is not None:
            _forget_if_other(name, source)
        importlib.invalidate_caches()
        try:
            module = importlib.import_module(name)
        except Exception as error:  # whatever the user's module raises while it is imported
            raise _refusal(
                field,
                f"module {name!r} cannot be imported (looked in {base or '.'} and the installed packages): "
                f"{type(error).__name__}: {error}",
            ) from error
        if source is not None:
            setattr(module, _STAMP, _stamp(source))
        return module


@contextmanager
def _first_on_path(base: str) -> Iterator[None]:
    folder = str(Path(base).resolve())
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


def _local_source(name: str, base: str) -> Path | None:
    stem = Path(base).resolve().joinpath(*name.split("."))
    for candidate in (stem.with_suffix(".py"), stem / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None


def _stamp(source: Path) -> tuple[str, int, int]:
    stat = source.stat()
    return str(source), stat.st_mtime_ns, stat.st_size


def _forget_if_other(name: str, source: Path) -> None:
    loaded = sys.modules.get(name)
    if loaded is None or getattr(loaded, _STAMP, None) == _stamp(source):
        return
    top = name.partition(".")[0]
    for known in [known for known in sys.modules if known == top or known.startswith(top + ".")]:
        del sys.modules[known]


def _refusal(field: str, message: str) -> ConfigError:
    return ConfigError([Problem(field, None, message)])
