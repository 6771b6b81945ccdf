"""The verbs put together."""

from __future__ import annotations

import typer

from rheostat.cli.advise import advise
from rheostat.cli.alerts import alerts
from rheostat.cli.calibrate import calibrate
from rheostat.cli.check import check
from rheostat.cli.consistency import consistency
from rheostat.cli.curve import curve
from rheostat.cli.delta import app as delta_app
from rheostat.cli.demo import demo
from rheostat.cli.distil import distil
from rheostat.cli.evaluate import evaluate
from rheostat.cli.experiment import experiment
from rheostat.cli.explain import explain
from rheostat.cli.init import init
from rheostat.cli.models import models
from rheostat.cli.ope import ope
from rheostat.cli.predict import predict
from rheostat.cli.profile import profile
from rheostat.cli.quantize import quantize
from rheostat.cli.relay import app as relay_app
from rheostat.cli.replay import replay
from rheostat.cli.report import report
from rheostat.cli.retune import retune
from rheostat.cli.review import review
from rheostat.cli.serve import serve
from rheostat.cli.sessions import sessions
from rheostat.cli.train import app as train_app
from rheostat.cli.tune import tune
from rheostat.cli.version import version
from rheostat.cli.versions import diff, rollback, versions
from rheostat.cli.weights import app as weights_app

PANELS = (
    ("Start", (init, check, demo)),
    ("Serve", (serve, predict, models, sessions, alerts, explain, consistency, review)),
    ("Change", (versions, diff, rollback)),
    ("Decide from data", (evaluate, profile, advise, calibrate, tune, retune, report, experiment, replay, curve, ope)),
    ("Make smaller models", (distil, quantize)),
    ("About", (version,)),
)

app = typer.Typer(
    help="Decides for every request which models run and how much each answer counts.\n\n"
    "With models of your own: init, check, serve. With labelled data: evaluate, tune, report. "
    "Each verb has --help with an example.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for panel, verbs in PANELS:
    for verb in verbs:
        app.command(rich_help_panel=panel)(verb)
app.add_typer(train_app, name="train", rich_help_panel="Decide from data")
app.add_typer(relay_app, name="relay", rich_help_panel="Decide from data")
app.add_typer(weights_app, name="weights", rich_help_panel="Weights")
app.add_typer(delta_app, name="delta", rich_help_panel="Weights")
