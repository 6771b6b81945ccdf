import math
import sqlite3
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rheostat.clock import ManualClock
from rheostat.errors import StoreError
from rheostat.telemetry.schema import APPLICATION_ID, SCHEMA_VERSION
from rheostat.telemetry.sqlite import P99_BY_VERSION, SqliteReader, SqliteSink
from rheostat.types import Attempt, Failure, Feedback, InputSummary, Outcome, Prediction, RouteRecord
from tests.telemetry.strategies import clean, hard, records


@settings(max_examples=20, deadline=None)
@given(st.lists(records(clean), max_size=4, unique_by=lambda record: record.id))
def test_what_is_written_is_read_back_exactly(batch):
    with tempfile.TemporaryDirectory() as folder:
        sink = SqliteSink(Path(folder, "r.db"))
        sink.write(batch)
        reader = SqliteReader(Path(folder, "r.db"))
        assert reader.recent(10) == batch[::-1]
        assert all(reader.get(record.id) == record for record in batch)
        reader.close()
        sink.close()


@settings(max_examples=25, deadline=None)
@given(st.lists(records(hard), min_size=1, max_size=3))
def test_any_text_is_stored(batch):
    with tempfile.TemporaryDirectory() as folder:
        sink = SqliteSink(Path(folder, "r.db"))
        for number, record in enumerate(batch):
            sink.write([record, RouteRecord(id=f"neighbour {number}", wall=0.0, route="", status="ok")])
        reader = SqliteReader(Path(folder, "r.db"))
        assert reader.query("SELECT count(*) FROM records WHERE id LIKE 'neighbour%'")[0][0] >= len(batch)
        assert all(isinstance(record, RouteRecord) for record in reader.recent(10))
        assert reader.query("SELECT count(*) FROM records WHERE NOT json_valid(record)") == [(0,)]
        reader.close()
        sink.close()


@pytest.fixture
def store(tmp_path):
    sink = SqliteSink(tmp_path / "r.db")
    reader = SqliteReader(tmp_path / "r.db")
    yield sink, reader
    reader.close()
    sink.close()


def test_columns_hold_what_people_ask_for(store, make_record):
    sink, reader = store
    sink.write([make_record(1, tenant="t", session="s", input=InputSummary("text", 1, "h", "\x00"))])
    columns = "id, ts, route, status, label, confidence, selected_model, selected_version, tenant, session, changed"
    assert reader.query(f"SELECT {columns} FROM records") == [
        ("r1", 1.7e9 + 1, "default", "ok", "pos", 0.9, "fast", "1", "t", "s", 1)
    ]
    assert reader.query("SELECT json_extract(record, '$.input.text') FROM records") == [("␀",)]
    assert reader.query("SELECT id, model, version, elapsed_s, failure FROM calls") == [("r1", "fast", "1", 0.01, None)]


def test_p99_by_model_version_is_one_query(store, make_record):
    sink, reader = store
    assert P99_BY_VERSION.strip().replace(" ", "") in SqliteSink.__doc__.replace(" ", "")
    sink.write([make_record(n, elapsed_s=n / 1000, version="v1") for n in range(1, 201)])
    sink.write([make_record(1000 + n, elapsed_s=n / 100, version="v2") for n in range(1, 51)])
    assert reader.query(P99_BY_VERSION) == [("fast", "v1", 200, 0.198), ("fast", "v2", 50, 0.5)]


def test_attempts_carry_failures_and_the_version_of_who_answered(store, make_record):
    sink, reader = store
    tries = (Attempt("a", 0.0, 0.1, Failure("timeout", "slow")), Attempt("b", 0.1, 0.2))
    sink.write([make_record(1, outcomes=(Outcome("a", Prediction("x", 0.5), None, tries, "b", "v9", 2, 0.3, 2.0),))])
    assert reader.query("SELECT position, model, version, failure, label FROM attempts") == [
        (0, "a", "", "timeout", None),
        (1, "b", "v9", None, "x"),
    ]


def test_attempts_of_all_outcomes_stand_in_one_row_of_places(make_record, tmp_path):
    """Read from JSON that leaves out defaults, and from JSON that was rebuilt to hide secrets and names them all."""
    slow = Attempt("a", 0.0, 0.1, Failure("unavailable", "slow", 503))
    outcomes = (
        Outcome("a", None, slow.failure, (slow, slow), "", "v1"),
        Outcome("none", None, Failure("no_capacity", "full")),
        Outcome("b", Prediction("x"), None, (Attempt("b", 0.2, 0.3),), "", "v2"),
    )
    for mask in (None, str):
        sink = SqliteSink(tmp_path / f"{mask}.db", mask=mask)
        reader = SqliteReader(tmp_path / f"{mask}.db")
        sink.write([make_record(1, outcomes=outcomes)])
        assert reader.query("SELECT seq, position, model, version, failure, upstream_status, label FROM attempts") == [
            (1, 0, "a", "v1", "unavailable", 503, None),
            (1, 1, "a", "v1", "unavailable", 503, None),
            (1, 2, "b", "v2", None, None, "x"),
        ]
        assert reader.query("SELECT DISTINCT id, ts, route, status FROM calls") == [("r1", 1.7e9 + 1, "default", "ok")]
        reader.close()
        sink.close()


def test_columns_read_out_of_the_json_have_their_defaults(store, make_record):
    sink, reader = store
    names = "route_type, reason, level, fallback_reason, overhead_s, propensity, policy_version, session, error_type"
    sink.write([RouteRecord(id="bare", wall=0.0, route="r", status="ok")])
    sink.write([make_record(1, reason="why", level=2, fallback_reason="f", propensity=0.5, error_type="timeout")])
    assert reader.query(f"SELECT {names} FROM records ORDER BY seq") == [
        ("", "", 0, "", 0.0, 1.0, "", None, None),
        ("cascade", "why", 2, "f", 0.0001, 0.5, "", None, "timeout"),
    ]


def test_a_look_at_the_calls_of_a_time_does_not_read_the_rest(store):
    _, reader = store
    plan = " ".join(str(row) for row in reader.query("EXPLAIN QUERY PLAN SELECT model FROM calls WHERE ts > 5.0"))
    assert "USING INDEX record_rows_by_time" in plan


def test_an_id_that_is_used_again_loses_no_record(store, make_record):
    sink, reader = store
    sink.write([make_record(1)])
    sink.write([make_record(1, label="other", wall=2e9), make_record(2)])
    sink.write([make_record(2)])  # a batch tried again
    rows = reader.query("SELECT id, label FROM records ORDER BY seq")
    assert rows == [("r1", "pos"), ("r1", "other"), ("r2", "pos")]
    assert reader.get("r1").label == "other"


def test_feedback_joins_whichever_comes_first(store, make_record):
    sink, reader = store
    early = Feedback(request_id="r1", label="a", wall=1.0)
    late = Feedback(request_id="r1", reward=0.5, source="web", wall=2.0)
    sink.write([early])
    sink.write([make_record(1), late])
    assert reader.feedback_for("r1") == [early, late]
    assert reader.feedback_for("r2") == []
    joined = "SELECT r.id, f.reward FROM records r JOIN feedback f ON f.request_id = r.id ORDER BY f.number"
    assert reader.query(joined) == [("r1", None), ("r1", 0.5)]
    assert reader.get("nobody") is None
    assert reader.get("\ud800") is None


def test_nan_is_stored_and_comes_back(store, make_record):
    sink, reader = store
    sink.write([make_record(1, signals={"x": math.nan}, cost=math.nan)])
    assert math.isnan(reader.get("r1").signals["x"])
    assert math.isnan(reader.get("r1").cost)


def test_recent_by_route(store, make_record):
    sink, reader = store
    sink.write([make_record(n, route="odd" if n % 2 else "even") for n in range(10)])
    assert [record.id for record in reader.recent(2)] == ["r9", "r8"]
    assert [record.id for record in reader.recent(2, "even")] == ["r8", "r6"]


def test_retention_by_rows(tmp_path, make_record):
    sink = SqliteSink(tmp_path / "r.db", max_rows=1_500)
    for start in range(0, 6_000, 500):
        sink.write([make_record(n) for n in range(start, start + 500)])
    reader = SqliteReader(tmp_path / "r.db")
    count, oldest, newest = reader.query("SELECT count(*), min(ts), max(ts) FROM records")[0]
    assert 1_500 <= count <= 2_500
    assert (oldest, newest) == (1.7e9 + 6_000 - count, 1.7e9 + 5_999)
    assert reader.query("SELECT count(*) FROM attempts") == [(count,)]
    reader.close()
    sink.close()


def test_retention_by_age(tmp_path, make_record):
    clock = ManualClock(1.7e9)
    sink = SqliteSink(tmp_path / "r.db", max_age_s=500.0, clock=clock)
    sink.write([make_record(n) for n in range(999)])
    sink.write([Feedback(request_id="r1", wall=1.7e9), Feedback(request_id="r1")])
    clock.advance(1_000.0)
    sink.write([make_record(n) for n in range(999, 2_000)])
    reader = SqliteReader(tmp_path / "r.db")
    assert reader.query("SELECT min(ts) - 1.7e9, count(*) FROM records") == [(500.0, 1_500)]
    assert reader.feedback_for("r1") == [Feedback(request_id="r1")]
    reader.close()
    sink.close()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"id,label\n1,2\n", "no SQLite database"),
        (b"SQLite format 3\x00" + b"\x93" * 5_000, "cannot be used as a record database"),
    ],
)
def test_a_foreign_or_damaged_file_is_left_as_it_is(tmp_path, content, message):
    path = tmp_path / "r.db"
    path.write_bytes(content)
    for opened in (SqliteSink, SqliteReader):
        with pytest.raises(StoreError, match=message):
            opened(path)
        assert path.read_bytes() == content


def test_another_programs_database_is_left_as_it_is(tmp_path):
    path = tmp_path / "r.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE theirs (x)")
    database.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="another program's database"):
        SqliteSink(path)
    assert path.read_bytes() == before


def test_a_later_schema_is_refused(tmp_path):
    path = tmp_path / "r.db"
    SqliteSink(path).close()
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    database.close()
    with pytest.raises(StoreError, match="later Rheostat"):
        SqliteSink(path)


def test_an_earlier_schema_can_be_read_and_is_not_written(tmp_path, make_record):
    path = tmp_path / "r.db"
    with sqlite3.connect(path) as database:
        database.executescript(
            """
            PRAGMA journal_mode = WAL;
            CREATE TABLE records (seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, ts REAL, route TEXT, record TEXT);
            CREATE TABLE attempts (
              seq INTEGER, position INTEGER, model TEXT, version TEXT, elapsed_s REAL, failure TEXT,
              PRIMARY KEY (seq, position)
            ) WITHOUT ROWID;
            INSERT INTO attempts VALUES (1, 0, 'fast', '1', 0.01, NULL);
            PRAGMA user_version = 1;
            """
        )
        database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        row = (1, "r1", 1.0, "default", msgspec.json.encode(make_record(1)).decode())
        database.execute("INSERT INTO records VALUES (?, ?, ?, ?, ?)", row)
    database.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"earlier Rheostat \(schema 1.*another file"):
        SqliteSink(path)
    reader = SqliteReader(path)
    assert reader.get("r1") == make_record(1)
    assert reader.recent(5) == [make_record(1)]
    assert reader.query(P99_BY_VERSION) == [("fast", "1", 1, 0.01)]
    reader.close()
    assert path.read_bytes() == before


def test_absent_and_unwritable_places_say_so(tmp_path):
    with pytest.raises(StoreError, match="absent or empty"):
        SqliteReader(tmp_path / "no.db")
    for opened in (SqliteSink, SqliteReader):
        with pytest.raises(StoreError, match="cannot open the records"):
            opened(tmp_path)
    assert not (tmp_path / "no.db").exists()


def test_a_locked_database_writes_nothing_and_works_later(tmp_path, make_record):
    sink = SqliteSink(tmp_path / "r.db")
    sink._database.execute("PRAGMA busy_timeout = 1")
    other = sqlite3.connect(tmp_path / "r.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked"):
        sink.write([make_record(1)])
    other.execute("COMMIT")
    other.close()
    sink.write([make_record(1)])
    assert SqliteReader(tmp_path / "r.db").get("r1") == make_record(1)
    sink.close()


def test_two_writers_share_a_file(tmp_path, make_record):
    sinks = [SqliteSink(tmp_path / "r.db"), SqliteSink(tmp_path / "r.db")]
    for number in range(100):
        sinks[number % 2].write([make_record(number)])
    reader = SqliteReader(tmp_path / "r.db")
    assert [record.id for record in reader.recent(200)] == [f"r{number}" for number in reversed(range(100))]
    for part in (reader, *sinks):
        part.close()


def test_a_file_that_was_moved_away_is_opened_anew(tmp_path, make_record):
    path = tmp_path / "r.db"
    sink = SqliteSink(path)
    sink.write([make_record(1)])
    for name in ("r.db", "r.db-wal", "r.db-shm"):
        (tmp_path / name).rename(tmp_path / f"old-{name}")
    sink.write([make_record(2)])
    sink.close()
    assert [record.id for record in SqliteReader(path).recent(9)] == ["r2"]


def test_a_file_that_comes_back_after_trouble_is_used_again(tmp_path, make_record):
    path, away = tmp_path / "r.db", tmp_path / "away.db"
    sink = SqliteSink(path)
    sink.write([make_record(1)])
    path.rename(away)
    path.mkdir()
    with pytest.raises(StoreError, match="cannot open"):
        sink.write([make_record(2)])
    path.rmdir()
    away.rename(path)
    sink.write([make_record(2)])
    sink.close()
    assert [record.id for record in SqliteReader(path).recent(9)] == ["r2", "r1"]
