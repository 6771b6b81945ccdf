"""What leaves a request behind: records, numbers and the service's own log."""

from rheostat.telemetry.base import Entry, Sink
from rheostat.telemetry.jsonl import JsonlSink, read_records
from rheostat.telemetry.lane import SinkStats
from rheostat.telemetry.mask import Masker, fingerprint, mask_secrets
from rheostat.telemetry.metrics import GAUGES, Metrics
from rheostat.telemetry.recorder import Recorder, RecorderStats
from rheostat.telemetry.sqlite import P99_BY_VERSION, SqliteReader, SqliteSink

__all__ = [
    "GAUGES",
    "P99_BY_VERSION",
    "Entry",
    "JsonlSink",
    "Masker",
    "Metrics",
    "Recorder",
    "RecorderStats",
    "Sink",
    "SinkStats",
    "SqliteReader",
    "SqliteSink",
    "fingerprint",
    "mask_secrets",
    "read_records",
]
