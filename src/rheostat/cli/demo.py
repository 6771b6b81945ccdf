"""`rheostat demo`."""

from __future__ import annotations

import typer

from rheostat.cli.console import told


@told
def demo() -> None:
    """Train, tune and serve a real pool of three models, and show what routing brings (about 3 minutes)."""
    from rheostat.demo.run import main

    raise typer.Exit(main())
