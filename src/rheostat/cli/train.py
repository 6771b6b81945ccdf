"""`rheostat train`: what is learned from outcomes and served from a file."""

from __future__ import annotations

import typer

from rheostat.cli.train_bandit import bandit
from rheostat.cli.train_difficulty import difficulty
from rheostat.cli.train_quality import quality
from rheostat.cli.train_router import router
from rheostat.cli.train_weights import weights

VERBS = (bandit, difficulty, router, quality, weights)

app = typer.Typer(help="Learn a signal from an outcomes table, and write the file that serves it.", no_args_is_help=True)


@app.callback()
def _train() -> None:
    """Learn a signal from an outcomes table, and write the file that serves it."""


for verb in VERBS:
    app.command()(verb)
