"""Where the demo's things lie, and what its routes are called."""

from __future__ import annotations

import shutil
from pathlib import Path

from msgspec import Struct

CASCADE, BLEND = "default", "blend"
"""The routes of the two tuned policies; their files and kinds follow."""
FILES = {CASCADE: "tuned.yaml", BLEND: "tuned-blend.yaml"}
KINDS = {CASCADE: "cascade", BLEND: "cascade+blend"}
_MADE = (
    *FILES.values(), "outcomes.parquet", "records.sqlite", "records.sqlite-wal", "records.sqlite-shm", "report.html",
    "table.txt", "table.json", "gateway.log",
)  # fmt: skip


class Place(Struct, frozen=True):
    """Where things lie."""

    out: Path
    cache: Path

    @property
    def config(self) -> Path:
        """The gateway's config."""
        return self.out / "rheostat.yaml"

    def clear(self) -> None:
        """Take away what an earlier demo made and this one would otherwise go on with; all else is written over."""
        self.out.mkdir(parents=True, exist_ok=True)
        for name in _MADE:
            (self.out / name).unlink(missing_ok=True)
        shutil.rmtree(self.out / "outcomes.parquet.part", ignore_errors=True)
