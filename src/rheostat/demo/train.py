"""Three models for one task, trained and calibrated: a word list, a linear model, a transformer with a linear head.

Fitted on train; regularisation and calibration on dev; nothing here sees test. Every file that is written is one that a
`rheostat` config can name, so this page is also an example of how to bring own models.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from rheostat.backends.onnx import OnnxModel
from rheostat.backends.text_rules import Cut, Fallback, RulesModel
from rheostat.demo.bag import Bag, write_onnx
from rheostat.demo.data import LABELS, Sentence, Split, Tell
from rheostat.demo.encoder import MAX_LENGTH, Encoder, quantise
from rheostat.lab.outcomes import TrainingCard
from rheostat.pool import ModelSettings
from rheostat.signals.calibrate import choose_calibrator, save_calibrator
from rheostat.types import Prediction

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Progress = Callable[[int, int], None]
"""Takes how many texts are done, of how many."""

_TIMED = 200  # texts a model's cost is measured on
_FAST_GRID = (1.0, 4.0)
_LARGE_GRID = (0.003, 0.03)
_FAST_STEPS, _LARGE_STEPS = 200, 1_000


class Tier(Struct, frozen=True):
    """One trained model: its settings for the config, without cost, and its CPU milliseconds for one text here."""

    settings: ModelSettings
    cpu_ms: float
    card: TrainingCard | None = None


def write_data(split: Split, folder: Path) -> str:
    """Write train, dev and test as JSON lines with id, text, label and where the sentence comes from.

    Returns the sha256 of `train.jsonl`, by which training cards name what a model was trained on.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("train", "dev", "test"):
        with (folder / f"{part}.jsonl").open("wb") as file:
            for number, sentence in enumerate(getattr(split, part)):
                row = {"id": f"{part}-{number}", "text": sentence.text, "label": sentence.label, "source": sentence.source}
                file.write(msgspec.json.encode(row) + b"\n")
    return hashlib.sha256((folder / "train.jsonl").read_bytes()).hexdigest()


def write_lexicon(words: Mapping[str, float], folder: Path) -> RulesModel:
    """Write the word list as the `rules` backend reads it."""
    lines = ["# VADER sentiment lexicon, MIT licence; Hutto and Gilbert, ICWSM 2014"]
    lines += [f"{word}\t{valence}" for word, valence in sorted(words.items())]
    (folder / "lexicon.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    cuts = (Cut(label=LABELS[0], below=0.0), Cut(label=LABELS[1]))
    return RulesModel(lexicon="lexicon.tsv", cuts=cuts, default=Fallback(label=LABELS[1], confidence=0.5))


def train(
    words: Mapping[str, float], split: Split, folder: Path, data_hash: str, tell: Tell, progress: Progress
) -> dict[str, Tier]:
    """Train and calibrate all three models; their files, cards and calibrators go into `folder`.

    Args:
        words: the lexicon, lower-case words with their valence.
        folder: where `encoder.onnx` and `tokenizer.json` lie already.
        data_hash: what `write_data` returned.
        progress: hears how the slowest step, reading all sentences with the encoder, gets on.
    """
    rules = write_lexicon(words, folder)
    tell("training the fast model: word pieces and pairs, logistic regression ...")
    fast, fast_card = _train_fast(split, folder, data_hash)
    if not (folder / "encoder-int8.onnx").is_file():
        tell("writing the large model with 8-bit weights ...")
    encoder = Encoder(quantise(folder / "encoder.onnx", folder / "encoder-int8.onnx"), folder / "tokenizer.json")
    tell("training the large model's head: every sentence goes through the encoder once ...")
    large, large_card, scores = _train_large(encoder, split, folder, data_hash, progress)
    tell("calibrating on dev ...")
    return {
        "rules": _tier("rules", rules, None, _said(rules, split.dev, folder), split.dev, folder),
        "fast": _tier("fast", fast, fast_card, _said(fast, split.dev, folder), split.dev, folder),
        "large": _tier("large", large, large_card, scores, split.dev, folder),
    }


def _train_fast(split: Split, folder: Path, source: str) -> tuple[OnnxModel, TrainingCard]:
    import numpy as np
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_LENGTH)
    train, dev = ([each.ids for each in tokenizer.encode_batch(_texts(part))] for part in (split.train, split.dev))
    bag = Bag(tokenizer.get_vocab_size())
    x = bag.fit(train), bag.features(dev)
    y = _labels(split.train), _labels(split.dev)
    model, card = _best_logistic(x, y, _FAST_GRID, source, solver="liblinear", tol=1e-4, max_iter=_FAST_STEPS)
    # A binary model knows the log odds of its second label only; half of them each way is the same as a softmax.
    halves = np.array([[-0.5], [0.5]])
    write_onnx(bag, halves * model.coef_, (halves * model.intercept_)[:, 0], LABELS, folder / "fast.onnx")
    _write_card(card, folder / "fast.onnx")
    return OnnxModel(path="fast.onnx", tokenizer="tokenizer.json", max_length=MAX_LENGTH, labels=LABELS), card


def _train_large(
    encoder: Encoder, split: Split, folder: Path, source: str, progress: Progress
) -> tuple[OnnxModel, TrainingCard, list[Prediction]]:
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import FloatTensorType
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    texts = _texts(split.train) + _texts(split.dev)
    done = 0

    def more(count: int) -> None:
        nonlocal done
        done += count
        progress(done, len(texts))

    embedded = encoder.embed(texts, more)
    parts = embedded[: len(split.train)], embedded[len(split.train) :]
    y = _labels(split.train), _labels(split.dev)
    # Unit-length vectors have tiny gradients, at which a solver stops before it has begun: scale them first.
    scaler = StandardScaler().fit(parts[0])
    x = scaler.transform(parts[0]), scaler.transform(parts[1])
    model, card = _best_logistic(x, y, _LARGE_GRID, source, tol=1e-6, max_iter=_LARGE_STEPS)
    pipeline = make_pipeline(scaler, model)
    inputs = [("embedding", FloatTensorType([None, embedded.shape[1]]))]
    written = to_onnx(pipeline, initial_types=inputs, options={id(model): {"zipmap": False}}, target_opset=17)
    (folder / "head.onnx").write_bytes(written.SerializeToString())
    (folder / "head.onnx.json").write_bytes(msgspec.json.encode({"labels": LABELS}))
    _write_card(card, folder / "head.onnx")
    settings = OnnxModel(
        path="encoder-int8.onnx",
        head="head.onnx",
        tokenizer="tokenizer.json",
        max_length=MAX_LENGTH,
        chunk=1,  # an 8-bit encoder scales its numbers by what else is in the batch
        labels=LABELS,
    )
    said = [Prediction.from_scores(dict(zip(LABELS, row, strict=True))) for row in model.predict_proba(x[1]).tolist()]
    return settings, card, said


def _best_logistic(
    x: tuple[Any, Any], y: tuple[Any, Any], grid: Sequence[float], source: str, **solver: Any
) -> tuple[Any, TrainingCard]:
    """Fit with every strength of the grid; keep the one that is best on dev, the more regularised one of equals."""
    from sklearn.linear_model import LogisticRegression

    fitted = [LogisticRegression(C=strength, **solver).fit(x[0], y[0]) for strength in grid]
    accuracy = [float(model.score(x[1], y[1])) for model in fitted]
    best = accuracy.index(max(accuracy))
    steps = int(max(fitted[best].n_iter_))
    card = TrainingCard(
        train_accuracy=float(fitted[best].score(x[0], y[0])),
        dev_accuracy=accuracy[best],
        converged=steps < solver["max_iter"],
        iterations=steps,
        max_iterations=solver["max_iter"],
        data_hash=source,
    )
    return fitted[best], card


def _said(settings: ModelSettings, sentences: Sequence[Sentence], folder: Path) -> list[Prediction]:
    """What the served model says, uncalibrated."""
    backend: Any = settings.open(str(folder))
    replies = backend.predict(_texts(sentences))
    backend.close()
    failed = [reply for reply in replies if not isinstance(reply, Prediction)]
    if failed:
        raise failed[0]
    return list(replies)


def _tier(
    name: str,
    settings: ModelSettings,
    card: TrainingCard | None,
    said: Sequence[Prediction],
    dev: Sequence[Sentence],
    folder: Path,
) -> Tier:
    """Fit the calibrator and time the model, one text at a time as requests come."""
    confidence: Any = [prediction.confidence for prediction in said]
    if all(prediction.scores for prediction in said):
        confidence = [[(prediction.scores or {})[label] for label in LABELS] for prediction in said]
    right = [prediction.label == sentence.label for prediction, sentence in zip(said, dev, strict=True)]
    save_calibrator(choose_calibrator(confidence, right), str(folder / f"{name}.calibration.json"))
    backend: Any = settings.open(str(folder))
    texts = _texts(dev[:_TIMED])
    before = time.thread_time()
    for text in texts:
        backend.predict([text])
    cpu_ms = (time.thread_time() - before) / len(texts) * 1000
    backend.close()
    return Tier(msgspec.structs.replace(settings, calibration=f"{name}.calibration.json"), cpu_ms, card)


def _write_card(card: TrainingCard, model: Path) -> None:
    model.with_name(f"{model.name}.card.json").write_bytes(msgspec.json.format(msgspec.json.encode(card), indent=1) + b"\n")


def _texts(sentences: Sequence[Sentence]) -> list[str]:
    return [sentence.text for sentence in sentences]


def _labels(sentences: Sequence[Sentence]) -> NDArray[np.int64]:
    import numpy as np

    return np.array([LABELS.index(sentence.label) for sentence in sentences], dtype=np.int64)
