import fcntl
import os
import re
import select
import threading

import pytest
from msgspec import structs

from rheostat.clock import ManualClock
from rheostat.telemetry.base import Sink
from rheostat.telemetry.jsonl import JsonlSink, read_records
from rheostat.telemetry.recorder import Recorder
from rheostat.telemetry.sqlite import SqliteReader, SqliteSink
from rheostat.types import Feedback, InputSummary


class ListSink:
    """Keeps entries; waits at `gate`, and raises what `faults` says for the first writes."""

    def __init__(self, faults=(), refuses=()):
        self.kept, self.faults, self.refuses = [], list(faults), refuses
        self.gate, self.entered = threading.Event(), threading.Event()
        self.gate.set()
        self.closed = False

    def write(self, entries):
        self.entered.set()
        self.gate.wait()
        if self.faults:
            raise self.faults.pop(0)
        if any(entry.id in self.refuses for entry in entries):
            raise ValueError("cannot store this one")
        self.kept.extend(entries)

    def close(self):
        self.closed = True


def test_everything_arrives_in_order_in_every_sink(make_record, tmp_path):
    sinks = [JsonlSink(tmp_path / "r.jsonl"), SqliteSink(tmp_path / "r.db"), ListSink()]
    assert all(isinstance(sink, Sink) for sink in sinks)
    recorder = Recorder(sinks)
    for number in range(1_000):
        recorder.put(make_record(number))
    assert recorder.flush()
    ids = [f"r{number}" for number in range(1_000)]
    assert [entry.id for entry in sinks[2].kept] == ids
    assert [entry.id for entry in read_records(tmp_path / "r.jsonl")] == ids
    stats = recorder.stats()
    assert (stats.queued, stats.written, set(stats.dropped.values())) == (0, 3_000, {0})
    assert [sink.name for sink in stats.sinks] == ["jsonl", "sqlite", "list"]
    assert recorder.close() == 0
    assert sinks[2].closed


def test_close_writes_what_is_queued(make_record):
    sink = ListSink()
    recorder = Recorder([sink], flush_s=60)
    for number in range(500):
        recorder.put(make_record(number))
    assert recorder.close() == 0
    assert len(sink.kept) == 500
    recorder.put(make_record())
    assert recorder.stats().dropped["closed"] == 1
    assert recorder.flush(0.0)  # nothing is left to wait for


def test_a_stuck_sink_blocks_nobody_and_what_is_dropped_is_counted_and_told(make_record, caplog):
    stuck, other, clock = ListSink(), ListSink(), ManualClock(1_000.0)
    stuck.gate.clear()
    recorder = Recorder([stuck, other], max_entries=100, flush_s=0.01, clock=clock)
    recorder.put(make_record(0))
    assert stuck.entered.wait(5)
    for number in range(1, 301):
        recorder.put(make_record(number))
        if number == 200:
            clock.advance(60.0)
        if number % 50 == 0:
            assert recorder._lanes[1].mark().wait(5)  # the other sink goes on meanwhile
    assert len(other.kept) == 301
    first, second = recorder.stats().sinks
    assert first.dropped == {"queue_full": 200, "sink_error": 0, "closed": 0}
    assert first.queued <= 101
    assert second.dropped["queue_full"] == 0
    stuck.gate.set()
    assert recorder.flush()
    recorder.close()
    assert [entry.id for entry in stuck.kept] == [f"r{number}" for number in range(101)]
    told = [message for message in caplog.messages if "200 entries were dropped (queue_full 200)" in message]
    assert len(told) == 1
    assert "between 1970-01-01T00:16:40Z and 1970-01-01T00:17:40Z" in told[0]


@pytest.mark.parametrize("meta", [{"note": "x" * 100_000}, {"a": {"b": [{"c": "x" * 30_000}]}}, {"a": list(range(6_000))}])
def test_memory_is_bounded_in_bytes(make_record, meta):
    sink = ListSink()
    sink.gate.clear()
    recorder = Recorder([sink], max_bytes=1_000_000, flush_s=0.01)
    for number in range(100):
        recorder.put(make_record(number, meta=meta))
    stats = recorder.stats()
    assert 5 <= stats.queued <= 12
    assert stats.sinks[0].queued_bytes <= 1_000_000
    assert stats.dropped["queue_full"] == 100 - stats.queued
    sink.gate.set()
    assert recorder.flush()
    recorder.put(make_record(1_000))  # the room is given back
    recorder.close()
    assert sink.kept[-1].id == "r1000"


def test_a_failing_sink_is_tried_again_until_it_works(make_record, caplog):
    sink = ListSink(faults=[OSError("disk full")] * 3 + [RuntimeError("odd")])
    recorder = Recorder([sink], flush_s=0.01, mask=lambda text: text.replace("disk", "****"))
    recorder.put(make_record(1))
    assert recorder.flush(10)
    assert [entry.id for entry in sink.kept] == ["r1"]
    stats = recorder.stats().sinks[0]
    assert (stats.failing, stats.dropped["sink_error"], stats.restarts) == (False, 0, 0)
    assert "cannot write, will try again: OSError: **** full" in caplog.text
    assert caplog.text.count("cannot write") == 1
    recorder.close()


def test_one_bad_entry_costs_one_entry(make_record):
    sink = ListSink(refuses={"r5"})
    recorder = Recorder([sink], flush_s=0.01)
    for number in range(10):
        recorder.put(make_record(number))
    assert recorder.flush(10)
    assert [entry.id for entry in sink.kept] == [f"r{number}" for number in range(10) if number != 5]
    assert recorder.stats().dropped["sink_error"] == 1
    recorder.close()


@pytest.mark.parametrize("fault", [SystemExit(), KeyboardInterrupt(), MemoryError()])
def test_the_writer_survives_everything(make_record, fault):
    sink = ListSink(faults=[fault])
    recorder = Recorder([sink], flush_s=0.01)
    recorder.put(make_record(1))
    assert recorder.flush(10)
    assert len(sink.kept) == 1
    recorder.close()


def test_a_broken_writer_is_started_anew_and_says_so(make_record, monkeypatch, caplog):
    sink = ListSink()
    recorder = Recorder([sink], flush_s=0.01)
    lane = recorder._lanes[0]
    real = lane._settle

    def broken(**_):
        monkeypatch.setattr(lane, "_settle", real)
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(lane, "_settle", broken)
    recorder.put(make_record(1))
    assert recorder.flush(10)
    assert recorder.stats().sinks[0].restarts == 1
    assert "the writer failed and goes on: RuntimeError: a mistake of ours" in caplog.text
    recorder.close()


def test_close_gives_up_on_a_stuck_sink_and_counts_what_is_lost(make_record, caplog):
    sink = ListSink()
    sink.gate.clear()
    recorder = Recorder([sink], flush_s=0.01)
    for number in range(5):
        recorder.put(make_record(number))
    assert not recorder.flush(0.01)
    assert recorder.close(timeout_s=0.05) == 5
    assert "5 entries were dropped (closed 5)" in caplog.text
    sink.gate.set()


def test_stores_with_other_settings_make_their_own_json(make_record, tmp_path):
    sinks = [
        JsonlSink(tmp_path / "masked", mask=lambda text: text.replace("hunter22", "****")),
        JsonlSink(tmp_path / "bare"),
        SqliteSink(tmp_path / "short.db", max_text=100),
        ListSink(),
    ]
    recorder = Recorder(sinks)
    record = make_record(1, error="key hunter22" + "!" * 188)
    recorder.put(record)
    assert recorder.close() == 0
    reader = SqliteReader(tmp_path / "short.db")
    assert [entry.error for entry in read_records(tmp_path / "masked")] == ["key ****" + "!" * 188]
    assert list(read_records(tmp_path / "bare")) == [record]
    assert reader.get("r1").error == "key hunter22" + "!" * 88 + "…[cut: 200 characters in all]"
    assert sinks[3].kept == [record]
    reader.close()


def test_what_has_piled_up_is_written_in_large_batches(make_record):
    sink = ListSink()
    sizes, write = [], sink.write
    sink.write = lambda entries: (sizes.append(len(entries)), write(entries))
    sink.gate.clear()
    recorder = Recorder([sink], flush_s=0.01)
    recorder.put(make_record(0))
    assert sink.entered.wait(5)
    for number in range(1, 5_001):
        recorder.put(make_record(number))
    sink.gate.set()
    assert recorder.close(60.0) == 0
    assert sizes == [1, 2_000, 2_000, 1_000]
    assert [entry.id for entry in sink.kept] == [f"r{number}" for number in range(5_001)]


def test_a_batch_of_huge_entries_is_small(make_record):
    sink = ListSink()
    sizes, write = [], sink.write
    sink.write = lambda entries: (sizes.append(len(entries)), write(entries))
    sink.gate.clear()
    recorder = Recorder([sink], flush_s=0.01)
    recorder.put(make_record(0))
    assert sink.entered.wait(5)
    for number in range(1, 41):
        recorder.put(make_record(number, input=InputSummary("text", 2**20, "h", "x" * 2**20)))
    sink.gate.set()
    assert recorder.close(60.0) == 0
    assert sum(sizes) == 41
    assert max(sizes) == 8


def test_close_writes_a_full_queue(make_record, tmp_path):
    recorder = Recorder([JsonlSink(tmp_path / "r.jsonl"), SqliteSink(tmp_path / "r.db")], flush_s=60.0)
    record = make_record()
    for number in range(9_000):  # under half of the queue, where writing would begin by itself
        recorder.put(structs.replace(record, id=f"r{number}"))
    assert recorder.close(60.0) == 0
    reader = SqliteReader(tmp_path / "r.db")
    assert reader.query("SELECT count(*) FROM records") == [(9_000,)]
    assert sum(1 for _ in read_records(tmp_path / "r.jsonl")) == 9_000
    reader.close()


def test_a_pipe_nobody_reads(make_record, tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    sink = JsonlSink(path)  # no reader yet: no waiting
    recorder = Recorder([sink], max_entries=200, flush_s=0.01)
    recorder.put(make_record(0))
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
    for number in range(1, 1_000):
        recorder.put(make_record(number))  # returns, though nobody reads
    dropped = recorder.stats().dropped["queue_full"]
    assert dropped >= 600
    data, done = b"", threading.Event()

    def read():
        nonlocal data
        select.select([reader], [], [])  # before somebody writes, a read would find the end
        os.set_blocking(reader, True)
        while part := os.read(reader, 65536):
            data += part
        done.set()

    threading.Thread(target=read, daemon=True).start()
    assert recorder.close(timeout_s=10) == 0
    assert done.wait(10)
    os.close(reader)
    ids = [int(found) for found in re.findall(rb'"dataset":"rheostat.record","id":"r(\d+)"', data)]
    assert len(ids) == 1_000 - dropped
    assert ids == sorted(ids)


def test_feedback_is_recorded_too():
    class Keep(ListSink):
        def write(self, entries):
            self.kept.extend(entries)

    sink = Keep()
    recorder = Recorder([sink, Keep()])
    recorder.put(Feedback(request_id="r1", reward=1.0))
    recorder.close()
    assert sink.kept == [Feedback(request_id="r1", reward=1.0)]
    assert [stats.name for stats in recorder.stats().sinks] == ["keep", "keep-2"]
