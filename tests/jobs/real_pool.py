"""Real models on real data: sentences of Python's help pages, and scikit-learn's digits as rows of features."""

from __future__ import annotations

import csv
import hashlib
import io
import re
from functools import cache
from pathlib import Path
from typing import Any

from rheostat.jobs import split_of

PAGES = {"debugging": ["debugger"], "strings": ["strings", "formatstrings"], "types": ["typesseq", "typesmapping"]}


def sentences() -> list[tuple[str, str]]:
    """A few hundred real sentences with the page they are from."""
    from pydoc_data.topics import topics

    rows = []
    for label, names in PAGES.items():
        for sentence in re.split(r"(?<=[.!?:])\s+", " ".join(topics[name] for name in names))[:200]:
            if len(sentence) > 30:
                rows.append((" ".join(sentence.split()), label))
    return rows


def write_csv(path: Path, rows: list[tuple[str, str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        writer.writerows(rows)


def text_pool(folder: Path) -> None:
    """`data.csv`, `fast.onnx` and `large.joblib`: two scikit-learn pipelines trained on the train split."""
    write_csv(folder / "data.csv", sentences())
    fast, large = _trained()
    (folder / "fast.onnx").write_bytes(fast)
    (folder / "large.joblib").write_bytes(large)


@cache
def _trained() -> tuple[bytes, bytes]:
    """The ONNX file and the joblib file, made once a test run."""
    import joblib
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import StringTensorType
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    train = [row for row in sentences() if split_of(row[0]) == "train"]
    texts, labels = [text for text, _ in train], [label for _, label in train]
    fast = make_pipeline(TfidfVectorizer(max_features=60), LogisticRegression(max_iter=500, C=10)).fit(texts, labels)
    large = make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), LogisticRegression(max_iter=500, C=100)).fit(texts, labels)
    options: Any = {TfidfVectorizer: {"locale": "C.UTF-8"}, LogisticRegression: {"zipmap": False}}
    exported = to_onnx(fast, initial_types=[("text", StringTensorType([None, 1]))], options=options)
    pickled = io.BytesIO()
    joblib.dump(large, pickled)
    return exported.SerializeToString(), pickled.getvalue()


def digit_pool(folder: Path) -> None:
    """`digits.csv` (64 feature columns), `tree.onnx` and `forest.joblib`."""
    import joblib
    from skl2onnx import to_onnx
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression
    from sklearn.tree import DecisionTreeClassifier

    digits = load_digits()
    data, target = digits.data[:600].astype("float32"), digits.target[:600]
    with (folder / "digits.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*digits.feature_names, "digit", "split"])
        for row, (values, label) in enumerate(zip(data.tolist(), target.tolist(), strict=True)):
            writer.writerow([*values, label, "train" if row < 300 else ("validation" if row < 400 else "test")])
    tree = DecisionTreeClassifier(max_depth=4, random_state=0).fit(data[:300], target[:300])
    linear = LogisticRegression(max_iter=300, C=0.1).fit(data[:300] / 16.0, target[:300])
    linear.coef_ /= 16.0
    (folder / "tree.onnx").write_bytes(to_onnx(tree, data[:1], options={"zipmap": False}).SerializeToString())
    joblib.dump(linear, folder / "linear.joblib")


def config(folder: Path, name: str = "rheostat.yaml") -> Path:
    """A config for the text pool."""
    digest = hashlib.sha256((folder / "large.joblib").read_bytes()).hexdigest()
    labels = ", ".join(sorted(PAGES))
    place = folder / name
    place.write_text(
        f"models:\n"
        f"  fast: {{backend: onnx, path: fast.onnx, labels: [{labels}], cost: 1}}\n"
        f"  large: {{backend: sklearn, path: large.joblib, trusted: true, sha256: {digest}, cost: 10}}\n"
        f"routes:\n"
        f"  default:\n"
        f"    policy: {{cascade: {{stages: [fast, large], threshold: 0.8}}}}\n"
        f"records: {{sqlite: records.sqlite}}\n",
        encoding="utf-8",
    )
    return place
