import errno
import json
import math
import os
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rheostat.errors import StoreError
from rheostat.telemetry.jsonl import JsonlSink, read_records
from rheostat.telemetry.mask import Masker
from rheostat.types import Feedback, InputSummary, RouteRecord
from tests.telemetry.strategies import clean, entries, hard


def written(batch, **options):
    """Write a batch to a new file; returns its bytes and what is read back."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "r.jsonl")
        sink = JsonlSink(path, **options)
        sink.write(batch)
        sink.close()
        return path.read_bytes(), list(read_records(path))


@settings(max_examples=40, deadline=None)
@given(st.lists(entries(clean), max_size=4))
def test_what_is_written_is_read_back_exactly(batch):
    data, back = written(batch)
    assert back == batch
    assert all("changed" not in json.loads(line)["rheostat"] for line in data.splitlines())


@settings(max_examples=60, deadline=None)
@given(st.lists(entries(hard), min_size=1, max_size=4))
def test_any_text_gives_one_row_that_parses_by_itself(batch):
    data, back = written(batch)
    lines = data.decode().splitlines()  # splits at U+2028 and the like too: a viewer would
    assert len(lines) == len(batch) == len(back)
    assert [json.loads(line)["event"]["sequence"] for line in lines] == list(range(1, len(batch) + 1))
    assert not set(data.decode()) & {chr(code) for code in (*range(10), *range(11, 32), *range(0x7F, 0xA0))}
    assert [type(entry) for entry in back] == [type(entry) for entry in batch]


@pytest.mark.parametrize(
    ("text", "kept", "changed"),
    [
        ("a\x00b", "a␀b", True),
        ("a\ud800b", "a\ufffdb", True),
        ("\x1b[31mred", "␛[31mred", True),
        ("one\r\n{\"faked\": 1}", "one\r\n{\"faked\": 1}", False),
        ("literal \\u0000", "literal \\u0000", False),
        ("👩\u200d🔬", "👩\u200d🔬", False),
        ("שלום \u202e", "שלום \u202e", False),
        ("", "", False),
    ],
)  # fmt: skip
def test_hard_text_is_replaced_visibly_and_flagged(make_record, text, kept, changed):
    data, back = written([make_record(1), make_record(2, input=InputSummary("text", len(text), "h", text)), make_record(3)])
    assert back[1].input == InputSummary("text", len(text), "h", kept, changed)
    assert json.loads(data.splitlines()[1])["rheostat"].get("changed", False) is changed
    assert (back[0], back[2]) == (make_record(1), make_record(3))


def test_long_text_is_cut_with_its_full_length_noted(make_record):
    text = "长" * 1_000_000
    data, (back,) = written([make_record(input=InputSummary("text", len(text), "h", text))], max_text=100)
    assert back.input.text == "长" * 100 + "…[cut: 1000000 characters in all]"
    assert back.input.changed
    assert len(data) < 5_000


def test_objects_unknown_to_json_do_not_stop_the_batch(make_record):
    loop = []
    loop.append(loop)
    batch = [
        make_record(1, meta={"loop": loop, "object": object(), "keys": {(1, 2): 3}, "set": {1}}),
        make_record(2, signals={"x": math.nan}, cost=math.inf),
        make_record(3, weights={"fast": "\x00 is not a number"}),
        make_record(4),
    ]
    _, back = written(batch)
    assert [record.id for record in back] == ["r1", "r2", "r3", "r4"]
    assert back[0].meta["object"] == "<object>"
    assert math.isnan(back[1].signals["x"])
    assert back[2].error_type == "unstorable_record"
    assert "Expected `float`, got `str`" in back[2].error
    assert back[3] == make_record(4)


def test_ecs_fields(make_record):
    trace = "0af7651916cd43dd8448eb211c80319c"
    record = make_record(
        7, elapsed_s=0.25, status="error", wall=1.5, meta={"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
    )
    data, _ = written([record, Feedback(request_id="r7", wall=2.0, reward=1.0)], service="shop")
    first, second = map(json.loads, data.splitlines())
    assert first["@timestamp"] == "1970-01-01T00:00:01.500000Z"
    assert first["event"] == {
        "kind": "event", "dataset": "rheostat.record", "id": "r7", "sequence": 1, "outcome": "failure",
        "duration": 250_000_000,
    }  # fmt: skip
    assert first["trace"] == {"id": trace}
    assert first["service"] == {"name": "shop"}
    assert first["rheostat"]["record"]["route"] == "default"
    assert second["event"]["dataset"] == "rheostat.feedback"
    assert set(first) <= {"@timestamp", "ecs", "service", "process", "event", "rheostat", "trace"}


def test_wall_time_only_stamps_rows(make_record):
    data, _ = written(
        [make_record(i, wall=wall, elapsed_s=1.0) for i, wall in enumerate((1e9, 1e9 + 3600, 1e9 - 3600, 1e99))]
    )
    events = [json.loads(line)["event"] for line in data.splitlines()]
    assert [event["sequence"] for event in events] == [1, 2, 3, 4]
    assert {event["duration"] for event in events} == {1_000_000_000}


@pytest.mark.parametrize(
    ("wall", "text"),
    [
        (1.7e9, "2023-11-14T22:13:20.000000Z"),
        (1.7e9 + 0.25, "2023-11-14T22:13:20.250000Z"),
        (1.7e9 - 0.25, "2023-11-14T22:13:19.750000Z"),
        (-0.5, "1969-12-31T23:59:59.500000Z"),
        (2, "1970-01-01T00:00:02.000000Z"),
        (1e99, "1970-01-01T00:00:00.000000Z"),
        (math.inf, "1970-01-01T00:00:00.000000Z"),
        (math.nan, "1970-01-01T00:00:00.000000Z"),
        ("soon", "1970-01-01T00:00:00.000000Z"),
    ],
)
def test_timestamps(make_record, wall, text):
    data, _ = written([make_record(1, wall=1.7e9 + 0.5)] * 2 + [make_record(2, wall=wall, elapsed_s="long")] * 2)
    stamps = [json.loads(line)["@timestamp"] for line in data.splitlines()]
    assert stamps == ["2023-11-14T22:13:20.500000Z"] * 2 + [text] * 2


def test_an_id_from_outside_stays_inside_its_quotes(make_record):
    outside = 'a","outcome":"x\\\u2028é'
    data, back = written([make_record(1, id=outside), Feedback(request_id=outside)])
    assert [json.loads(line)["event"]["id"] for line in data.decode().splitlines()] == [outside] * 2
    assert [back[0].id, back[1].request_id] == [outside] * 2


def test_secrets_in_errors_are_masked(make_record):
    masker = Masker(["s3cr3t-key-of-upstream"])
    data, _ = written([make_record(error="GET http://up?key=s3cr3t-key-of-upstream failed")], mask=masker.mask)
    assert b"s3cr3t-key-of-upstream" not in data


def test_torn_last_line_is_left_out_and_does_not_hurt_the_next_row(make_record, tmp_path, caplog):
    path = tmp_path / "r.jsonl"
    sink = JsonlSink(path)
    sink.write([make_record(1), make_record(2)])
    sink.close()
    path.write_bytes(path.read_bytes()[:-30])
    assert [record.id for record in read_records(path)] == ["r1"]
    assert not caplog.records
    again = JsonlSink(path)
    again.write([make_record(3)])
    again.close()
    assert [record.id for record in read_records(path)] == ["r1", "r3"]
    assert "1 lines are no records" in caplog.text


def test_another_programs_file_is_refused(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"hello": 1}\n')
    with pytest.raises(StoreError, match="no Rheostat records"):
        list(read_records(path))
    with pytest.raises(StoreError, match="cannot write records"):
        JsonlSink(tmp_path)


def test_a_rotated_file_is_opened_anew(make_record, tmp_path):
    path = tmp_path / "r.jsonl"
    sink = JsonlSink(path)
    sink.write([make_record(1)])
    path.rename(tmp_path / "old")
    sink.write([make_record(2)])
    sink.close()
    assert [record.id for record in read_records(tmp_path / "old")] == ["r1"]
    assert [record.id for record in read_records(path)] == ["r2"]


def test_rotation_by_size_keeps_the_newest(make_record, tmp_path):
    path = tmp_path / "r.jsonl"
    sink = JsonlSink(path, max_bytes=3_000, keep=2)
    for number in range(20):
        sink.write([make_record(number)])
    sink.close()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["r.jsonl", "r.jsonl.1", "r.jsonl.2"]
    assert all(file.stat().st_size <= 3_000 for file in tmp_path.iterdir())
    kept = [record.id for name in ("r.jsonl.2", "r.jsonl.1", "r.jsonl") for record in read_records(tmp_path / name)]
    assert kept == [f"r{number}" for number in range(20 - len(kept), 20)]


def test_a_batch_taken_by_half_is_finished_and_not_repeated(make_record, tmp_path, monkeypatch):
    path = tmp_path / "r.jsonl"
    sink = JsonlSink(path)
    real, full = os.write, threading.Event()

    def almost_full(fd, data):
        if full.is_set():
            raise OSError(errno.ENOSPC, "No space left on device")
        full.set()
        return real(fd, data[:700])

    monkeypatch.setattr(os, "write", almost_full)
    sink.write([make_record(1), make_record(2)])  # begun, so the sink owns the rest
    with pytest.raises(OSError, match="No space"):
        sink.write([make_record(3)])
    monkeypatch.setattr(os, "write", real)
    sink.write([make_record(3)])
    sink.close()
    assert [record.id for record in read_records(path)] == ["r1", "r2", "r3"]
    assert [json.loads(line)["event"]["sequence"] for line in path.read_bytes().splitlines()] == [1, 2, 3]


def test_records_of_a_later_version_with_more_fields_are_read(make_record, tmp_path):
    path = tmp_path / "r.jsonl"
    sink = JsonlSink(path)
    sink.write([make_record(1)])
    sink.close()
    path.write_bytes(path.read_bytes().replace(b'"record":{', b'"record":{"new_field":1,'))
    (back,) = read_records(path)
    assert isinstance(back, RouteRecord)
    assert back == make_record(1)
