"""The file in which promises stand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rheostat.clock import Clock
from rheostat.results.table import TABLES
from rheostat.sqlite_file import PATIENCE_S, Layout, SqliteFile

LAYOUT: Final = Layout(
    what="results",
    without="no request can be promised an answer",
    setting="results.path",
    application_id=0x52485253,  # "RHRS"
    version=1,
    tables=TABLES,
)


class Store(SqliteFile):
    """The file of promises at `path`; what `run` has returned survives a loss of power."""

    def __init__(self, path: str, clock: Clock, *, mask: Callable[[str], str] = str, patience_s: float = PATIENCE_S) -> None:
        super().__init__(path, LAYOUT, clock, mask=mask, patience_s=patience_s)
