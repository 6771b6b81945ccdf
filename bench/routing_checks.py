"""The smaller parts of the routing bench: a measured cascade, transfer, thresholds on fresh rows, calibration, speed."""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from bench import routing_data as source
from bench.routing_rows import HEAD, Table, Target, held_out, line_of, plain_lines, tell
from rheostat.lab.metrics import Floats, call_performance_curve
from rheostat.lab.reliability import ece
from rheostat.lab.routers import LEARNERS, TEXT, RoutingData, fitted, same_prompts, save_router, threshold_for_quality
from rheostat.lab.routers.data import folds
from rheostat.pool.onnx_session import open_session
from rheostat.signals import Scorer
from rheostat.signals.calibrate import choose_calibrator, fit_quantile
from rheostat.signals.learned import LearnedScorerSettings
from rheostat.types import Request

SEEDS = 5
SMALL, LARGE = "nb_hash256", "hybrid_large"


def headlines() -> Table:
    """NB-256, then the hybrid: by plain confidence, and by a router that reads the small model's answer and the text."""
    rows = source.read("measured-cascades/headlines.csv")
    weak, strong, confidence, margin = (
        np.array([float(row[key]) for row in rows])
        for key in (f"correct__{SMALL}", f"correct__{LARGE}", f"conf__{SMALL}", f"margin__{SMALL}")
    )
    data = _headline_rows(rows, weak, strong, confidence, margin)
    scores = {
        "plain confidence": [-confidence],
        **{name: held_out(data, name, SEEDS) for name in ("mean", "forest", "kernel")},
    }
    shown, least = [], {}
    for name, each in scores.items():
        line = line_of(name, data, each)
        curves = [call_performance_curve(data.weak, data.strong, score) for score in each]
        least[name] = 100 * float(np.mean([_share_for(curve.share, curve.quality, 0.870) for curve in curves]))
        half = float(np.mean([np.interp(0.5, curve.share, curve.quality) for curve in curves]))
        shown.append((*line.cells()[:4], f"{half:.4f}", f"{least[name]:.1f}"))
    return Table(
        f"HEADLINES cascade, {SMALL} ({weak.mean():.1%}) then {LARGE} ({strong.mean():.1%}), {len(rows)} test rows",
        (*HEAD[:4], "accuracy at 50 % large calls", "large calls for accuracy 0.870, %"), tuple(shown),
        ("FrugalGPT's published peak on this set: 0.870 at 94 % less cost (other models).",),
        (
            Target("must", "large calls for accuracy 0.870, %", least["mean"], "<=", 50.0),
            Target("good", "large calls for accuracy 0.870, %", least["mean"], "<=", 40.0),
        ),
    )  # fmt: skip


def _headline_rows(rows: list[source.Row], weak: Floats, strong: Floats, confidence: Floats, margin: Floats) -> RoutingData:
    place = {row["id"]: at for at, row in enumerate(source.read("frugalgpt-headlines/headlines.csv"))}
    vectors = np.load(source.folder() / "frugalgpt-headlines" / "emb_pca64.npy")[[place[row["id"]] for row in rows]]
    said = [row[f"pred__{SMALL}"] for row in rows]
    labels = sorted(set(said))
    texts = [row["headline"] for row in rows]
    plain = np.column_stack([confidence, margin, source.text_features(texts)])
    onehot = np.array(said)[:, None] == np.array(labels)[None, :]
    names = ("confidence", "margin", *TEXT, *(f"answer.label={label}" for label in labels))
    x = np.concatenate([plain, onehot, vectors], axis=1).astype(np.float32)
    return RoutingData(names, x, weak, strong, same_prompts(texts), vectors.shape[1], data_hash="headlines")


def _share_for(share: Floats, quality: Floats, target: float) -> float:
    reached = np.flatnonzero(quality >= target)
    return float(share[reached[0]]) if len(reached) else float("nan")


def transfer() -> Table:
    """Fitted on one set, applied to the other: out of domain a router of texts knows little."""
    both = {"MMLU": source.mmlu(tell), "GSM8K": source.gsm8k(tell)}
    shown = []
    for here, there in (("GSM8K", "MMLU"), ("MMLU", "GSM8K")):
        for name in ("mean", "ridge"):
            tell(f"transfer {here} to {there}: {name} ...")
            score = fitted(both[here], LEARNERS[name])[0].predict(both[there].x)
            shown.append((f"{here} to {there}", *line_of(name, both[there], [score]).cells()))
        shown.append((f"(no learning) {there}", *plain_lines(both[there])[1].cells()))
    note = "A router is for the traffic it was fitted on: on other traffic length may be the better guide."
    return Table("Transfer", ("from, to", *HEAD), tuple(shown), (note,))


def thresholds() -> Table:
    """Fit on 60 %, choose a threshold on 20 %, look at the last 20 %; ten splits of MMLU."""
    data = source.mmlu(tell)
    kept: dict[tuple[float, bool], list[tuple[float, float, float]]] = {}
    for split in range(10):
        tell(f"thresholds: split {split + 1} of 10")
        part = folds(data.same, 5, 100 + split)
        router, _ = fitted(data.take(part < 3), LEARNERS["kernel"])
        choose, fresh = data.take(part == 3), data.take(part == 4)
        chosen, applied = router.predict(choose.x), router.predict(fresh.x)
        for target in (0.95, 0.98):
            for sure in (False, True):
                cut = threshold_for_quality(choose, chosen, target, sure)
                sent = applied >= cut.threshold
                held = float(np.where(sent, fresh.strong, fresh.weak).mean() / fresh.strong.mean())
                kept.setdefault((target, sure), []).append((held, cut.share, float(sent.mean())))
    shown, targets = [], []
    for (target, sure), each in kept.items():
        held, wanted, share = np.array(each).T
        way = "one-sided 95 % bound" if sure else "plain"
        found = (f"{held.mean():.1%} ± {held.std():.1%}", f"{held.min():.1%}", f"{(held >= target).sum()} of 10")
        shown.append((f"{target:.0%}", way, *found, f"{share.mean():.1%}", f"{np.abs(share - wanted).mean():.1%}"))
        under = held.min() if sure else held.mean()
        what = f"points under {target:.0%}, {'bound, worst split' if sure else 'plain, on average'}"
        targets.append(Target("must", what, 100 * (target - float(under)), "<=", 2.0 if sure else 1.0))
    head = ("target (of the strong model)", "chosen by", "on fresh rows", "worst", "kept", "strong calls", "share off by")
    title = "Thresholds on fresh rows: fit 60, choose 20, apply 20 %, ten splits, kernel"
    return Table(title, head, tuple(shown), (), tuple(targets))


def calibrated() -> Table:
    """Confidences recalibrated on 500 rows, judged on the rest."""
    rows = source.read("measured-cascades/headlines.csv")
    names = [key.removeprefix("conf__") for key in rows[0] if key.startswith("conf__")]
    every = {
        f"HEADLINES, {name}": [np.array([float(row[f"{key}__{name}"]) for row in rows]) for key in ("conf", "correct")]
        for name in names
    }
    answered = source.gsm8k_answered(tell)
    right = replace(answered, strong=np.ones(len(answered)))  # gain = the weak answer is wrong
    check = 1.0 - np.clip(held_out(right, "forest", 1)[0], 1e-3, 1 - 1e-3)
    every["GSM8K, weak answer right (forest, out of fold)"] = [check, answered.weak]
    shown, targets = [], []
    for name, (confidence, correct) in every.items():
        found: list[tuple[float, float, float]] = []
        for draw in range(5):
            rng = np.random.default_rng(draw)
            order = rng.permutation(len(confidence))
            fit, rest = order[:500], order[500:]
            maps = (choose_calibrator(confidence[fit], correct[fit]), fit_quantile(confidence[fit], correct[fit], parts=10))
            auto, mass = (np.array([one.value(float(value)) for value in confidence[rest]]) for one in maps)
            lucky = (rng.random(len(rest)) < mass).astype(np.float64)
            found.append((ece(auto, correct[rest]), ece(mass, correct[rest]), ece(mass, lucky)))
        means = np.mean(found, axis=0).tolist()
        shown.append((name, str(len(confidence)), f"{ece(confidence, correct):.3f}", *(f"{value:.3f}" for value in means)))
        targets.append(Target("must", f"ECE of {name}", means[1], "<=", 0.03))
    head = ("confidence", "rows", "before", "after, by log loss", "after, quantiles", "perfect calibration, by chance alone")
    note = (
        "By log loss: the best of identity, temperature, Platt and isotonic in cross-validation; quantiles: ten parts of "
        "equally many rows. The targets look at quantiles, tried after log loss had missed two. "
        "Where chance alone makes 0.03, no method can be shown to keep it."
    )
    title = "ECE, 15 bins, before and after recalibration on 500 rows (mean of five draws)"
    return Table(title, head, tuple(shown), (note,), tuple(targets))


def speed() -> Table:
    """One request at a time, on one thread: text features and the model; an embedding is given."""
    data = source.mmlu(tell).take(np.arange(11_000))
    texts = sorted((row["prompt"] for row in source.read("routellm-mmlu/prompts_part1.csv")), key=len)
    text = texts[len(texts) // 2]
    narrow = replace(data, x=data.x[:, : len(data.features)], embedding=0)
    cases = (
        ("length", replace(narrow, features=("length",), x=data.x[:, :1]), ("ridge",)),
        (f"{len(TEXT)} text features", narrow, ("ridge", "tree", "boosted", "mean")),
        (
            "embedding given",
            replace(data, features=(), x=data.x[:, len(TEXT) :]),
            ("ridge", "kernel", "forest", "mean", "knn"),
        ),
    )
    shown, ours = [], np.nan
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "router.onnx")
        for title, rows, names in cases:
            for name in names:
                router, _ = fitted(rows, LEARNERS[name])
                save_router(router, LEARNERS[name], rows, path, fitted_on="train")
                took = _microseconds(path, rows, text)
                ours = took if (title, name) == ("embedding given", "mean") else ours
                shown.append((f"{name}, {title}", f"{took:.0f}", f"{path.stat().st_size / 1e6:.2f}"))
    target = Target("must", "microseconds a decision, mean (the default) on a given embedding", ours, "<=", 100.0)
    return Table(
        "Time of a decision, 11,000 rows to learn from (median; one thread)", ("router", "µs", "file, MB"), tuple(shown),
        (f"Text features are computed anew for a request of {len(text)} characters; an embedding is given.",), (target,),
    )  # fmt: skip


def _microseconds(path: Path, rows: RoutingData, text: str) -> float:
    request = Request(id="1", data=text, text=text)
    session, x = open_session(path, 1, "path"), rows.x[:1]
    scorer = None if rows.embedding else LearnedScorerSettings(path=str(path)).open("gain", ".")
    times = []
    for _ in range(600):
        start = time.perf_counter()
        if isinstance(scorer, Scorer):
            scorer.score(request)
        else:
            session.run(None, {"x": x})
        times.append(time.perf_counter() - start)
    return float(np.median(times[100:]) * 1e6)
