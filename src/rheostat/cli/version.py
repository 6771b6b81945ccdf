"""`rheostat version`."""

from __future__ import annotations

from rheostat.cli.console import say


def version() -> None:
    """Print the version."""
    import rheostat

    say(rheostat.__version__)
