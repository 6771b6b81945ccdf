"""Watching: what happens lately compared with what is usual, and what rings."""

from rheostat.watch.alerts import Alert, Alerts, Change
from rheostat.watch.finding import Finding, Monitor
from rheostat.watch.settings import WatchSettings
from rheostat.watch.watch import Watch

__all__ = ["Alert", "Alerts", "Change", "Finding", "Monitor", "Watch", "WatchSettings"]
