"""Policies: pure functions from a request's context and what has come back so far to what should happen now."""

from rheostat.policies.balance import Balance
from rheostat.policies.bandit import Bandit
from rheostat.policies.base import (
    History,
    Policy,
    Use,
    answering_of,
    found,
    live_of,
    models_of,
    settle,
    signals_of,
    steering_of,
    walk,
)
from rheostat.policies.binary import Binary
from rheostat.policies.blend import Blend, Delegate
from rheostat.policies.by_label import ByLabel
from rheostat.policies.cascade import Cascade
from rheostat.policies.cheapest import Cheapest
from rheostat.policies.compose import Chain
from rheostat.policies.parse import KINDS, parse_policy
from rheostat.policies.review import Review
from rheostat.policies.rules import Rule, Rules
from rheostat.policies.split import Arm, Split
from rheostat.policies.tiers import Tiers

__all__ = [
    "KINDS",
    "Arm",
    "Balance",
    "Bandit",
    "Binary",
    "Blend",
    "ByLabel",
    "Cascade",
    "Chain",
    "Cheapest",
    "Delegate",
    "History",
    "Policy",
    "Review",
    "Rule",
    "Rules",
    "Split",
    "Tiers",
    "Use",
    "answering_of",
    "found",
    "live_of",
    "models_of",
    "parse_policy",
    "settle",
    "signals_of",
    "steering_of",
    "walk",
]
