"""`python -m rheostat.testing.cases FILE...`"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rheostat.testing.cases.form import CaseError
from rheostat.testing.cases.report import summary, table, told
from rheostat.testing.cases.run import FAILED, JOBS, run_files

_FAILED, _UNREADABLE = 1, 2


def main() -> int:
    """Run the cases; 0 when none failed, 1 when some did, 2 when there was nothing to run."""
    parser = argparse.ArgumentParser(
        prog="python -m rheostat.testing.cases",
        description="Runs machine-readable cases against a gateway of this version, with scripted model servers.",
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="files of cases")
    parser.add_argument("--only", action="append", default=[], metavar="ID", help="run this case; may be repeated")
    parser.add_argument("--jobs", type=int, default=JOBS, metavar="N", help=f"cases at a time (default {JOBS})")
    parser.add_argument(
        "--slow", type=float, default=1.0, metavar="FACTOR", help="multiply every time in the cases, for a busy machine"
    )
    asked = parser.parse_args()
    if asked.jobs < 1:
        parser.error("--jobs is 1 or more")
    if not 1.0 <= asked.slow <= 100.0:
        parser.error("--slow lies between 1 and 100")
    try:
        verdicts = run_files(
            asked.files,
            only=asked.only,
            jobs=asked.jobs,
            slow=asked.slow,
            tell=lambda verdict: print(told(verdict), file=sys.stderr, flush=True),
        )
    except CaseError as error:
        print(error, file=sys.stderr)
        return _UNREADABLE
    print(table(verdicts))
    print(summary(verdicts))
    if not verdicts:
        return _UNREADABLE
    return _FAILED if any(verdict.state == FAILED for verdict in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
