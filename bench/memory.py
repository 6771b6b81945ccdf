"""Peak memory and time of the lab's verbs on a large outcomes table. `python -m bench.memory [--rows 1000000] [verb ...]`

A table of generated rows (two models, three labels, score distributions, a meta field, no texts) is written once to .cache/;
every verb then reads it in a process of its own, as a user would, and its peak resident memory is read from the kernel.
Without --rows the table has 1,000,000 rows.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from bench.replay import make_table
from rheostat.lab.outcomes_file import save

CACHE = Path(".cache") / "memory"
CASCADE = "{cascade: {stages: [fast, large], threshold: 0.8}}"
BLEND = "{blend: {weights: {fast: 0.4, large: 0.6}}}"
VERBS: dict[str, tuple[str, ...]] = {
    "curve": ("curve", "TABLE", "--split", "dev"),
    "tune": ("tune", "TABLE", "--goal", "max-share=0.3", "--force"),
    "calibrate": ("calibrate", "TABLE", "--model", "fast", "--method", "temperature"),
    "replay": ("replay", "TABLE", "--policy", CASCADE, "--split", "all"),
    "report": ("report", "TABLE", "--goal", "max-share=0.3"),
    "experiment": (
        "experiment", "TABLE", "--policy", "fast=fast", "--policy", f"cascade={CASCADE}", "--policy", f"blend={BLEND}",
        "--metric", "accuracy", "--metric", "log-loss", "--group", "group", "--split", "all", "--report", "experiment.html",
    ),
    "advise": ("advise", "TABLE"),
}  # fmt: skip
LIMIT_GIB = 4.0


def main(arguments: Sequence[str]) -> int:
    """Measure the named verbs, all by default; the exit status is 1 when one fails or needs more than 4 GiB."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("verbs", nargs="*", choices=[[], *VERBS], default=[])
    given = parser.parse_args(list(arguments))
    table = _table(given.rows)
    print(f"{given.rows:,} rows, {table.stat().st_size / 2**20:.0f} MiB on disk; {platform.machine()}, "
          f"Python {platform.python_version()}, NumPy {np.__version__}, 2 cores\n")  # fmt: skip
    print("| verb | peak memory | seconds | |", "|---|---|---|---|", sep="\n")
    bad = False
    for verb in given.verbs or VERBS:
        seconds, peak, status = _measured([str(table) if each == "TABLE" else each for each in VERBS[verb]])
        word = f"exit status {status}" if status not in (0, 1) else ("" if peak <= LIMIT_GIB else f"over {LIMIT_GIB:g} GiB")
        bad |= bool(word)
        print(f"| {verb} | {peak:.2f} GiB | {seconds:.0f} | {word} |", flush=True)
    return int(bad)


def _table(rows: int) -> Path:
    """Write the table, or take the one that is there."""
    path = (CACHE / f"outcomes-{rows}.parquet").absolute()
    if not path.is_file():
        print(f"writing {path.name} ...", file=sys.stderr)
        CACHE.mkdir(parents=True, exist_ok=True)
        made = make_table(rows)
        groups = np.array(['{"group":"a"}', '{"group":"b"}', '{"group":"c"}'], dtype=object)
        split = np.random.default_rng(0).choice(3, rows, p=[0.2, 0.4, 0.4]).astype(np.int8)
        save(replace(made, meta=groups[np.arange(rows) % 3], split=split, data_hash=""), path)
    return path


def _measured(arguments: Sequence[str]) -> tuple[float, float, int]:
    """Run one verb; return seconds, peak resident memory in GiB and its exit status."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, Path(folder, "said").open("wb") as said:
        child = os.posix_spawn(
            sys.executable,
            [sys.executable, "-c", f"import os; os.chdir({folder!r}); from rheostat.cli.app import app; app()", *arguments],
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, said.fileno(), 1), (os.POSIX_SPAWN_DUP2, said.fileno(), 2)],
        )
        _, status, used = os.wait4(child, 0)
        if os.waitstatus_to_exitcode(status) not in (0, 1):
            print(Path(folder, "said").read_text(encoding="utf-8", errors="replace")[-2000:], file=sys.stderr)
    return time.perf_counter() - began, used.ru_maxrss / 2**20, os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
