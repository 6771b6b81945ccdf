"""A runner for machine-readable cases: a config, scripted model servers, requests, and what must be seen.

`python -m rheostat.testing.cases FILE...` from a shell; `run_files` from a test.
"""

from rheostat.testing.cases.form import Case, CaseError, Unread, read_file
from rheostat.testing.cases.run import FAILED, NOT_BUILT, PASSED, Verdict, run_case, run_cases, run_files

__all__ = [
    "FAILED",
    "NOT_BUILT",
    "PASSED",
    "Case",
    "CaseError",
    "Unread",
    "Verdict",
    "read_file",
    "run_case",
    "run_cases",
    "run_files",
]
