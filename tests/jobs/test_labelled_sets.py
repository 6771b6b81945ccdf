"""Labelled files as people have them: bad lines, odd formats, missing columns, splits."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rheostat.jobs import BadLine, Columns, DataError, Example, LabelledSet, Part, split_of
from rheostat.jobs.lines import MAX_LINE, read_lines
from tests.jobs.real_pool import sentences


def labelled(path: Path, **options: object) -> LabelledSet:
    return LabelledSet([Part(path)], Columns(**options))  # type: ignore[arg-type]


def jsonl(path: Path, lines: list[bytes]) -> Path:
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


def hundred_lines() -> list[bytes]:
    """100 lines of which 7 is not JSON, 8 lacks the text, 9 has a number as text, 10 is empty, 11 is too long."""
    lines = [json.dumps({"text": f"row {n}", "label": "a" if n % 2 else "b"}).encode() for n in range(1, 101)]
    lines[6] = b'{"text": "torn", "lab'
    lines[7] = b'{"label": "a"}'
    lines[8] = b'{"text": 12, "label": "a"}'
    lines[9] = b""
    lines[10] = b'{"text": "' + b"x" * MAX_LINE + b'", "label": "a"}'
    return lines


def test_bad_lines_are_told_with_number_and_reason_and_the_rest_is_used(tmp_path: Path) -> None:
    found = labelled(jsonl(tmp_path / "rows.jsonl", hundred_lines())).survey()
    assert found.rows == 95
    assert found.blank == 1
    assert [bad.line for bad in found.bad] == [7, 8, 9, 11]
    reasons = [bad.reason for bad in found.bad]
    assert reasons[0].startswith("not JSON")
    assert reasons[1] == "`text` is missing"
    assert reasons[2] == "`text`: expected text, got the number 12"
    assert reasons[3] == f"longer than {MAX_LINE} bytes"


def test_on_request_the_first_bad_line_stops_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="line 7: not JSON"):
        labelled(jsonl(tmp_path / "rows.jsonl", hundred_lines())).survey(stop_at_first=True)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"only one field", "expected 2 fields (text, label), got 1"),
        (b"a,b,c", "expected 2 fields (text, label), got 3"),
        (b"text without label,", "`label` is missing"),
        (b"  ,a", "`text` is missing"),
        (b"caf\xe9,a", "not UTF-8 text"),
        (b'"quote "inside,a', "not CSV"),
        (b"nul \x00 character,a", None),
    ],
)
def test_bad_csv_lines_are_told_and_their_neighbours_are_used(tmp_path: Path, line: bytes, reason: str | None) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b"text,label\nfirst,a\n" + line + b"\nlast,b\n")
    items = list(labelled(path))
    first, middle, last = items
    assert isinstance(first, Example)
    assert isinstance(last, Example)
    assert (first.data, last.data) == ("first", "last")
    if reason is not None:
        assert isinstance(middle, BadLine)
        assert middle.line == 3
        assert reason in middle.reason


def test_a_quoted_field_may_span_lines_and_numbers_stay_right(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('text,label\n"two\nlines",a\n\nbad\nlast,b\n', encoding="utf-8")
    lines = list(read_lines(path))
    assert [line.number for line in lines] == [2, 4, 5, 6]
    assert lines[0].values == {"text": "two\nlines", "label": "a"}
    assert lines[1] == (4, None, "")


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_the_delimiter_is_read_from_the_header(tmp_path: Path, delimiter: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(f"text{delimiter}label\nhello{delimiter}a\n", encoding="utf-8-sig")
    (only,) = labelled(path)
    assert isinstance(only, Example)
    assert (only.data, only.label) == ("hello", "a")


@pytest.mark.parametrize("suffix", [".csv.gz", ".jsonl", ".jsonl.gz", ".tsv", ".parquet"])
def test_every_format_gives_the_same_examples_with_the_same_ids(tmp_path: Path, suffix: str) -> None:
    rows = sentences()[:40]
    plain = tmp_path / "plain.csv"
    with plain.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    other = tmp_path / f"other{suffix}"
    if suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({"text": [t for t, _ in rows], "label": [x for _, x in rows]}), other)
    elif suffix == ".tsv":
        with other.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, delimiter="\t").writerows([("text", "label"), *rows])
    else:
        body = plain.read_bytes()
        if "jsonl" in suffix:
            body = b"".join(json.dumps({"text": t, "label": x}).encode() + b"\n" for t, x in rows)
        other.write_bytes(gzip.compress(body) if suffix.endswith(".gz") else body)
    assert list(labelled(other)) == list(labelled(plain))
    assert len(list(labelled(plain))) == 40


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("rows.txt", b"", "the name must end with one of"),
        ("rows.csv", b"", "its first line is empty"),
        ("rows.csv", b"text,text\na,b\n", "names the column 'text' twice"),
        ("rows.csv", "text,label\n".encode("utf-16"), "not UTF-8 text"),
        ("rows.csv", b"text,lable\na,b\n", "did you mean 'lable'"),
        ("rows.csv", b"text,label\n", "no usable row"),
        ("rows.csv.gz", gzip.compress(b"text,label\n" + b"a,b\n" * 999)[:-9], "torn or no gzip file"),
        ("rows.csv.gz", b"text,label\na,b\n", "torn or no gzip file"),
        ("rows.parquet", b"PAR1 no", "cannot be read as Parquet"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(tmp_path: Path, name: str, content: bytes, told: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=told):
        labelled(path).survey()


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No such file"):
        labelled(tmp_path / "none.csv").survey()


def test_rows_without_text_are_features_and_meta_is_kept_apart(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("width,colour,channel,id,label\n1.5,red,mail,7,a\n,blue,,8,b\n", encoding="utf-8")
    first, second = labelled(path, meta=("channel",))
    assert isinstance(first, Example)
    assert isinstance(second, Example)
    assert first == ("7", first.split, "a", {"width": 1.5, "colour": "red"}, {"channel": "mail"})
    assert second.data == {"colour": "blue"}
    assert second.meta == {}


def test_ids_do_not_depend_on_other_rows(tmp_path: Path) -> None:
    one, two = tmp_path / "one.csv", tmp_path / "two.csv"
    one.write_text("text,label\nb,x\nb,x\nc,y\n", encoding="utf-8")
    two.write_text("text,label\nnew,x\nb,x\nc,y\nb,x\n", encoding="utf-8")
    ids = {item.id for item in labelled(one) if isinstance(item, Example)}
    assert len(ids) == 3
    assert ids <= {item.id for item in labelled(two) if isinstance(item, Example)}


def test_an_id_that_occurs_twice_is_a_bad_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("id,text,label\n1,a,x\n1,b,x\n", encoding="utf-8")
    found = labelled(path).survey()
    assert found.rows == 1
    assert found.bad[0].line == 3
    assert "occurs twice" in found.bad[0].reason


def test_splits_by_column_by_file_and_by_text(tmp_path: Path) -> None:
    column = tmp_path / "column.csv"
    column.write_text("text,label,split\na,x,train\nb,x,Validation\nc,x,test\nd,x,exam\n", encoding="utf-8")
    found = labelled(column).survey()
    assert found.splits == {"train": 1, "dev": 1, "test": 1}
    assert found.bad[0].reason == "`split`: expected train, dev or test, got 'exam'"
    assert found.split_by == "by the column 'split'"
    by_file = LabelledSet([Part(column, "val")]).survey()
    assert by_file.splits == {"dev": 4}
    assert by_file.split_by == "by file"
    with pytest.raises(DataError, match="unknown split 'exam'"):
        LabelledSet([Part(column, "exam")])


def test_the_automatic_split_has_its_shares() -> None:
    found = [split_of(f"text number {n}") for n in range(4000)]
    assert abs(found.count("train") - 2800) < 150
    assert abs(found.count("dev") - 400) < 90
    assert found != [split_of(f"text number {n}", seed=1) for n in range(4000)]


@given(st.text(min_size=1), st.sampled_from(["{} ", " {}", "{}!", "\n{}"]))
def test_variants_of_a_text_are_in_one_split(text: str, form: str) -> None:
    from rheostat.lab.trust import likeness

    variant = form.format(text)
    if likeness(text) and likeness(text) == likeness(variant):
        assert split_of(text) == split_of(variant) == split_of({"text": text})


@given(st.binary(max_size=300))
def test_no_content_makes_a_reader_fail(content: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        for name, body in (("rows.jsonl", content), ("rows.csv", b"text,label\n" + content)):
            path = Path(folder, name)
            path.write_bytes(body)
            numbers = [line.number for line in read_lines(path)]
            assert numbers == sorted(set(numbers))


def test_the_data_hash_names_the_content_and_how_it_was_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("text,label,topic\na,x,y\n", encoding="utf-8")
    first = labelled(path).survey()
    assert labelled(path).survey().data_hash == first.data_hash
    assert labelled(path, label="topic").survey().data_hash != first.data_hash
    assert LabelledSet([Part(path)], seed=1).survey().data_hash != first.data_hash
    path.write_text("text,label,topic\nb,x,y\n", encoding="utf-8")
    assert labelled(path).survey().data_hash != first.data_hash
