"""The config: one file, read and checked as a whole, watched while it serves."""

from rheostat.config.jsonschema import json_schema
from rheostat.config.load import Loaded, load_config
from rheostat.config.parts import Parts
from rheostat.config.policy_file import ModelPin, PolicyFile
from rheostat.config.schema import (
    AdminSettings,
    Config,
    HoldSettings,
    KeySettings,
    RecordSettings,
    RouteSettings,
    ServerSettings,
)
from rheostat.config.watch import watch

__all__ = [
    "AdminSettings",
    "Config",
    "HoldSettings",
    "KeySettings",
    "Loaded",
    "ModelPin",
    "Parts",
    "PolicyFile",
    "RecordSettings",
    "RouteSettings",
    "ServerSettings",
    "json_schema",
    "load_config",
    "watch",
]
