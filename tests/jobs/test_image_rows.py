"""Files of rows whose input is an image: which files may be named, and what a change of one means."""

from __future__ import annotations

import os
from base64 import b64encode
from pathlib import Path

import pytest

from rheostat.jobs import BadLine, Columns, DataError, Example, LabelledSet, Part
from rheostat.jobs.image_file import MOST_BYTES

COLUMNS = Columns(image="file")


def written(folder: Path, names: list[str]) -> LabelledSet:
    (folder / "pictures").mkdir(parents=True, exist_ok=True)
    (folder / "pictures" / "a.png").write_bytes(b"first")
    (folder / "b.png").write_bytes(b"second")
    lines = [f"{name},{number}" for number, name in enumerate(names)]
    (folder / "data.csv").write_text("\n".join(["file,label", *lines]) + "\n")
    return LabelledSet([Part(folder / "data.csv")], COLUMNS)


def test_a_row_is_the_file_as_a_client_would_send_it(tmp_path: Path) -> None:
    first, second = written(tmp_path, ["pictures/a.png", "b.png"])
    assert isinstance(first, Example)
    assert isinstance(second, Example)
    assert first.data == {"image": b64encode(b"first").decode()}
    assert (second.data, second.label) == ({"image": b64encode(b"second").decode()}, "1")


def test_files_outside_the_folder_are_refused_however_they_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (tmp_path / "secret.png").write_bytes(b"not yours")
    names = [
        "../secret.png",
        str(tmp_path / "secret.png"),
        "pictures/../../secret.png",
        "link.png",
        "/etc/passwd",
        "none.png",
    ]
    rows = written(folder, names)
    os.symlink(tmp_path / "secret.png", folder / "link.png")
    found = list(rows)
    assert all(isinstance(item, BadLine) for item in found)
    reasons = [item.reason for item in found if isinstance(item, BadLine)]
    assert all("outside the folder of data.csv" in reason for reason in reasons[:5])
    assert "none.png" in reasons[5]
    assert "No such file" in reasons[5]


def test_a_file_too_large_for_an_image_and_a_name_that_is_missing_are_bad_lines(tmp_path: Path) -> None:
    rows = written(tmp_path, ["large.png", "", "pictures"])
    with (tmp_path / "large.png").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    reasons = [item.reason for item in rows if isinstance(item, BadLine)]
    assert f"more than {MOST_BYTES} bytes" in reasons[0]
    assert "is missing" in reasons[1]
    assert "cannot be read" in reasons[2]


def test_another_picture_under_the_same_name_is_other_data(tmp_path: Path) -> None:
    rows = written(tmp_path, ["pictures/a.png", "b.png"])
    before = rows.survey().data_hash
    assert rows.survey().data_hash == before
    (tmp_path / "b.png").write_bytes(b"another")
    assert rows.survey().data_hash != before


def test_equal_pictures_fall_into_the_same_split(tmp_path: Path) -> None:
    rows = written(tmp_path, ["b.png", "c.png"])
    (tmp_path / "c.png").write_bytes(b"second")
    first, second = rows
    assert isinstance(first, Example)
    assert isinstance(second, Example)
    assert first.split == second.split


def test_an_unknown_column_of_images_is_named(tmp_path: Path) -> None:
    written(tmp_path, ["b.png"])
    with pytest.raises(DataError, match=r"no column 'flie'; did you mean 'file'.*--image-column"):
        list(LabelledSet([Part(tmp_path / "data.csv")], Columns(image="flie")))
