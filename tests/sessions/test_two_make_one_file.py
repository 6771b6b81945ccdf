"""Two processes that begin at once may make one file between them."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

MAKE = """
import sys, time
from rheostat.sessions.sqlite import LAYOUT
from rheostat.sqlite_file import connect
while time.time() < float(sys.argv[2]):
    pass
connect(sys.argv[1], LAYOUT).execute("SELECT count(*) FROM sessions").fetchone()
"""


def test_a_file_is_made_once_by_whoever_comes_first(tmp_path: Path) -> None:
    for number in range(6):
        command = [sys.executable, "-c", MAKE, str(tmp_path / f"{number}.db"), str(time.time() + 1.0)]
        both = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
        for each in both:
            _, said = each.communicate(timeout=30.0)
            assert each.returncode == 0, said
