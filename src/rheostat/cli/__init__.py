"""The command line: one file per verb."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command that was typed."""
    from rheostat.cli.app import app

    sys.exit(app())
