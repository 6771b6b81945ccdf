"""What is lost and gained by a smaller model? `python -m bench.smaller [distil] [quantize] [images]`

distil: a student from a frozen MiniLM's answers, without any label, on SST-2 and Banking77, beside the same student fitted
on the right labels. quantize: MiniLM with 8-bit weights under the same head, on SST-2. images: on MNIST, a small net that
learned from a convolutional net's answers, each with 8-bit weights too, asked one image at a time as they are served.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bench import digit_models
from bench.embeddings import CACHE, embed, encoder_folder
from bench.fits import fit_logistic
from bench.labelled import SPLITS, why_absent
from bench.pools import Pool, outcomes, train_pool
from rheostat.lab.outcomes import OutcomesTable
from rheostat.lab.smaller import Smaller, compare, distil, quantize_file, with_model
from rheostat.pool.onnx_session import open_session
from rheostat.pool.onnx_tokens import TextEncoder

SETS = ("sst2", "banking77")
FOLDER = CACHE / "smaller"
_ROWS, _TIMED = 900, 150
_HEAD = "| set | made | large | small | small - large | agreement | size | speed | before large, at 20 % of calls |"


def main(arguments: Sequence[str]) -> int:
    """Run the named parts, both by default; return the exit status."""
    unknown = [name for name in arguments if name not in ("distil", "quantize", "images")]
    if unknown:
        print(f"unknown part {unknown[0]!r}; known: distil, quantize, images")
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    lines, told = [_HEAD, "|" + "---|" * 9], []
    if not arguments or "images" in arguments:
        absent = digit_models.why_absent()
        told += [] if absent is None else [absent]
        lines += _images() if absent is None else []
    for name in SETS if not arguments or {"distil", "quantize"} & set(arguments) else ():
        absent = why_absent(name)
        if absent is not None:
            told.append(absent)
            continue
        pool = train_pool(name, _tell)
        if not arguments or "distil" in arguments:
            lines += _distilled(name, outcomes(pool))
        if name == "sst2" and (not arguments or "quantize" in arguments):
            lines.append(_quantized(name, pool))
    print("\n".join([*lines, "", *told]))
    return 0


def _distilled(name: str, table: OutcomesTable) -> list[str]:
    encoder = encoder_folder(_tell)
    size = sum((encoder / file).stat().st_size for file in ("encoder.onnx", "model.onnx_data"))
    blind = replace(table, truth=np.full(len(table), -1, dtype=np.int32))
    lines = []
    for made, source in (("student of large, no labels", blind), ("same student, right labels", _with_truth(table))):
        teacher = "large" if source is blind else "truth"
        began = time.perf_counter()
        student = distil(source, teacher, FOLDER / f"{name}-{teacher}.onnx")
        _tell(f"{name}, {made}: {time.perf_counter() - began:.0f} s")
        bare = replace(table, columns={"large": table.columns["large"]}, model_info={"large": table.model_info["large"]})
        wait = float(student.waits.mean())
        cost = 100.0 * wait / float(table.columns["large"].latency_s[0])
        wide = with_model(bare, "student", student.scores, cost=cost, latency_s=wait)
        large_waits = table.columns["large"].latency_s[:_TIMED]
        found = compare(wide, "large", "student", sizes=(size, student.size), waits=(large_waits, student.waits))
        lines.append(_line(name, made, found))
    return lines


def _with_truth(table: OutcomesTable) -> OutcomesTable:
    """The table with a model that is always right: a student of it is an ordinary classifier. Its test rows stay unread."""
    scores = np.zeros((len(table), len(table.labels)))
    scores[np.arange(len(table)), table.truth] = 1.0
    return with_model(table, "truth", scores, cost=1.0, latency_s=0.0)


def _quantized(name: str, pool: Pool) -> str:
    source = encoder_folder(_tell)
    target = FOLDER / "encoder-int8.onnx"
    if not target.is_file():
        _tell("writing the encoder with 8-bit weights ...")
        quantize_file(source / "encoder.onnx", target)
    x: dict[str, Any] = {split: embed(pool.inputs[split], _tell).astype(np.float64) for split in SPLITS}
    mean, spread = x["train"].mean(axis=0), x["train"].std(axis=0)
    head, _ = fit_logistic({split: (x[split] - mean) / spread for split in SPLITS}, pool.truth, (0.01,))
    large, small = (TextEncoder(path, source / "tokenizer.json", 128) for path in (source / "encoder.onnx", target))
    table = outcomes(pool)
    kept = np.sort(np.concatenate([np.flatnonzero(table.split == code)[:_ROWS] for code in (1, 2)]))
    table = table.subset(kept)
    texts = [text for split in SPLITS for text in pool.inputs[split]]
    began = time.perf_counter()
    vectors = np.concatenate([small.embed(texts[row]) for row in kept.tolist()])
    wait = (time.perf_counter() - began) / len(kept)
    whole = np.concatenate([x[split] for split in SPLITS])[kept]
    waits = tuple(_timed(encoder, [texts[row] for row in kept[-_TIMED:].tolist()]) for encoder in (large, small))
    bare = replace(table, columns={"x": table.columns["large"]}, model_info={})
    wide = with_model(bare, "float32", head.predict_proba((whole - mean) / spread), cost=100.0, latency_s=waits[0].mean())
    cost = 100.0 * float(waits[1].mean() / waits[0].mean())
    wide = with_model(wide, "int8", head.predict_proba((vectors - mean) / spread), cost=cost, latency_s=wait)
    wide = replace(wide, columns={each: wide.columns[each] for each in ("int8", "float32")})
    sizes = (sum((source / file).stat().st_size for file in ("encoder.onnx", "model.onnx_data")), target.stat().st_size)
    return _line(
        name, "MiniLM with 8-bit weights", compare(wide, "float32", "int8", sizes=sizes, waits=(waits[0], waits[1]))
    )


def _images() -> list[str]:
    """The net and its student, in 32 and in 8 bits."""
    folder = digit_models.digit_models(_tell)
    paths = {name: folder / f"{name}.onnx" for name in ("large", "student")}
    for name in ("large", "student"):
        paths[f"{name}-int8"] = FOLDER / f"{name}-int8.onnx"
        quantize_file(paths[name], paths[f"{name}-int8"])
    digits = {split: part for split, part in digit_models.read_digits().items() if split != "train"}
    images = np.concatenate([part[0] for part in digits.values()]).astype(np.float32)[:, None, None] / np.float32(255)
    truth = np.concatenate([part[1] for part in digits.values()]).astype(np.int32)
    waits, scores = {}, {}
    for name, path in paths.items():
        session = open_session(path, 1, "path")
        logits, waits[name] = _one_by_one(session, images)
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        scores[name] = powers / powers.sum(axis=1, keepdims=True)
    table = OutcomesTable(
        ids=np.array([f"{number}" for number in range(len(truth))], dtype=object), labels=digit_models.LABELS, truth=truth,
        split=np.repeat(np.array([1, 2], np.int8), [len(part[1]) for part in digits.values()]),
        columns={}, model_info={},
    )  # fmt: skip
    for name in ("large", "large-int8", "student", "student-int8"):
        cost = 100.0 * float(waits[name].mean() / waits["large"].mean())
        table = with_model(table, name, scores[name], cost=cost, latency_s=waits[name])
    made = {
        "student": "student of the net",
        "large-int8": "the net, 8-bit weights",
        "student-int8": "student, 8-bit weights",
    }
    lines = []
    for name, said in made.items():
        part = replace(table, columns={each: table.columns[each] for each in (name, "large")})
        sizes = (paths["large"].stat().st_size, paths[name].stat().st_size)
        lines.append(_line("MNIST", said, compare(part, "large", name, sizes=sizes)))
    return lines


def _one_by_one(session: Any, images: Any) -> tuple[Any, Any]:
    name = session.get_inputs()[0].name
    for image in images[:50]:
        session.run(None, {name: image})
    logits, waits = [], []
    for image in images:
        began = time.perf_counter()
        (said,) = session.run(None, {name: image})
        waits.append(time.perf_counter() - began)
        logits.append(said[0])
    return np.array(logits, dtype=np.float64), np.array(waits)


def _timed(encoder: TextEncoder, texts: Sequence[str]) -> np.ndarray[Any, np.dtype[np.float64]]:
    waits = []
    for text in texts:
        began = time.perf_counter()
        encoder.embed(text)
        waits.append(time.perf_counter() - began)
    return np.array(waits)


def _line(name: str, made: str, found: Smaller) -> str:
    assert found.accuracy is not None
    assert found.change is not None
    change, speed, seen = found.change, found.speed, found.cascade
    cells = [
        f"{name}, {found.rows} test rows", made,
        *(f"{each.mean:.2%}" for each in found.accuracy),
        f"{change.mean * 100:+.2f} [{change.low * 100:+.2f}, {change.high * 100:+.2f}]",
        f"{found.agreement.mean:.1%} [{found.agreement.low:.1%}, {found.agreement.high:.1%}]",
        f"{found.sizes[0] / 1e6:.1f} -> {found.sizes[1] / 1e6:.2f} MB",
        f"{speed.mean:.3g} [{speed.low:.3g}, {speed.high:.3g}] times as fast",
        "-" if seen is None else f"{seen.reported.quality.mean:.2%} at {seen.reported.share.mean:.1%}"
        f" ({'pays' if found.worth else 'does not pay'})",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
