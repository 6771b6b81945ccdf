"""Do learned binary routers beat the published ones? `python -m bench.routing [part ...] [--shuffle]`

On RouteLLM's own outcomes of MMLU and GSM8K, and on measured classifier cascades. Every score is out of fold, duplicates
together, settings chosen inside the fold; figures are means over split seeds, intervals from the paired bootstrap over
prompts. With `--shuffle` the labels are permuted: then there must be no signal.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from bench import routing_data as source
from bench.routing_checks import calibrated, headlines, speed, thresholds, transfer
from bench.routing_rows import (
    HEAD,
    Line,
    Table,
    Target,
    gap_of,
    gap_words,
    held_out,
    line_of,
    plain_lines,
    published,
    tell,
)  # fmt: skip
from rheostat.lab.metrics import Floats, apgr, call_performance_curve, cpt
from rheostat.lab.routers import LEARNERS, RoutingData, fitted, judge, out_of_fold

SEEDS = 5
DRAWS, LABELS = 10, 1_500
OURS = "mean"
ONCE = ("boosted", "ridge+knn", "knn", "factors", "tree")
OTHERS = ("forest", "kernel", "boosted", "ridge+knn", "ridge", "knn", "logistic", "factors", "tree")


def main(arguments: Sequence[str]) -> int:
    """Run the named parts, all by default; return the exit status."""
    shuffle = "--shuffle" in arguments
    names = [name for name in arguments if name != "--shuffle"]
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        print(f"unknown part {unknown[0]!r}; known: {', '.join(PARTS)}")
        return 2
    missing = source.absent()
    if missing:
        print(f"routing skipped: {missing[0]} is not there; it is not shipped, set RHEOSTAT_DATA to where `routing/` lies")
        return 0
    if shuffle:
        return _shuffled()
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
    found: list[Target] = []
    for name in names or PARTS:
        start = time.perf_counter()
        table = PARTS[name]()
        print(table.markdown(), flush=True)
        found += table.targets
        tell(f"{name} done in {time.perf_counter() - start:.0f} s")
    for level in ("must", "good"):
        of = [target for target in found if target.level == level]
        print(f"{level}: {sum(target.reached for target in of)} of {len(of)} reached")
    return 0


def _compare(
    title: str, data: RoutingData, names: Sequence[str], cited: Sequence[Line], *, cascade: bool = False
) -> tuple[list[Line], dict[str, list[Floats]]]:
    scores = {name: held_out(data, name, 1 if name in ONCE else SEEDS) for name in names}
    tell(f"{title}: intervals ...")
    plain = plain_lines(data, cascade=cascade)
    lines = [
        line_of(f"{name} (one split seed)" if name in ONCE else name, data, each, cascade=cascade)
        for name, each in scores.items()
    ]
    return [*plain[:2], *cited, *lines, plain[2]], scores


def mmlu_few() -> Table:
    """1,500 labels, the setting of RouteLLM's own augmented routers; judged on all other prompts."""
    data = source.mmlu(tell)
    found: dict[str, list[tuple[float, float, float]]] = {}
    kinds = int(data.same.max()) + 1
    for draw in range(DRAWS):
        tell(f"1,500 labels: draw {draw + 1} of {DRAWS}")
        prompts = np.random.default_rng(draw).permutation(kinds)
        place = np.argsort(prompts)[data.same]  # the order in which the prompts are drawn
        limit = np.sort(place)[LABELS]
        train, rest = data.take(place < limit), data.take(place >= limit)
        for name in (OURS, "forest", "kernel", "boosted", "ridge+knn", "ridge", "logistic"):
            curve = call_performance_curve(rest.weak, rest.strong, fitted(train, LEARNERS[name])[0].predict(rest.x))
            found.setdefault(name, []).append((apgr(curve), cpt(curve, 0.5), cpt(curve, 0.8)))
    rows = [line.cells()[:4] for line in (*plain_lines(data)[:2], *_MMLU_FEW)]
    for name, each in found.items():
        mean, spread = np.mean(each, axis=0), np.std(each, axis=0)
        rows.append([name, f"{mean[0]:.3f} ± {spread[0]:.3f}", f"{mean[1] * 100:.1f}", f"{mean[2] * 100:.1f}"])
    reached = float(np.mean(found[OURS], axis=0)[0])
    return Table(
        f"MMLU, text only, at most {LABELS:,} labels (mean ± spread of {DRAWS} draws)",
        ("router", "APGR", *HEAD[2:4]), tuple(map(tuple, rows)), (),
        (Target("must", "APGR", reached, ">=", 0.63), Target("good", "APGR", reached, ">=", 0.645)),
    )  # fmt: skip


def mmlu() -> Table:
    """Five folds, text features and embedding only."""
    data = source.mmlu(tell)
    lines, scores = _compare("MMLU, text", data, (OURS, *OTHERS), _MMLU)
    ours = next(line for line in lines if line.name == OURS)
    notes = [gap_words(OURS, name, gap_of(data, scores[OURS], scores[name])) for name in ("ridge+knn", "logistic")]
    return Table(
        f"MMLU, text only, 5 folds, {SEEDS} split seeds", HEAD, tuple(tuple(line.cells()) for line in lines), tuple(notes),
        (
            Target("must", "APGR", ours.apgr, ">=", 0.67), Target("must", "CPT50", ours.cpt50, "<=", 28.5),
            Target("must", "CPT80", ours.cpt80, "<=", 58.5), Target("must", "lower bound of APGR", ours.low, ">", 0.603),
            Target("good", "APGR", ours.apgr, ">=", 0.68),
        ),
    )  # fmt: skip


def mmlu_subject() -> Table:
    """Five folds, with the subject beside the text."""
    data = source.with_group(source.mmlu(tell), source.subjects())
    lines, scores = _compare("MMLU, subject", data, (OURS, "forest", "kernel", "ridge", "group"), ())
    ours = next(line for line in lines if line.name == OURS)
    gap = gap_of(data, scores[OURS], scores["group"])
    return Table(
        f"MMLU with subject, 5 folds, {SEEDS} split seeds", HEAD, tuple(tuple(line.cells()) for line in lines),
        (gap_words(OURS, "group (subject mean)", gap),),
        (
            Target("must", "APGR", ours.apgr, ">=", 0.69), Target("must", "gap to subject mean, low end", gap.low, ">", 0),
            Target("must", "cost at 95 % quality", ours.cost95, "<=", 42.0), Target("good", "APGR", ours.apgr, ">=", 0.70),
            Target("good", "cost at 95 % quality", ours.cost95, "<=", 40.0),
        ),
    )  # fmt: skip


def mmlu_unseen() -> Table:
    """Whole subjects held out, in the inner folds too; intervals draw whole subjects."""
    data = source.by_group(source.mmlu(tell), source.subjects())
    lines, _ = _compare("MMLU, unseen subjects", data, (OURS, "forest", "kernel", "ridge", "logistic"), _MMLU_FEW[3:])
    ours = next(line for line in lines if line.name == OURS)
    return Table(
        f"MMLU, unseen subjects, 5 folds, {SEEDS} split seeds", HEAD, tuple(tuple(line.cells()) for line in lines), (),
        (Target("must", "APGR", ours.apgr, ">=", 0.60), Target("good", "APGR", ours.apgr, ">=", 0.62)),
    )  # fmt: skip


def gsm8k() -> Table:
    """Before any answer."""
    data = source.gsm8k(tell)
    lines, scores = _compare("GSM8K", data, (OURS, *OTHERS), _GSM8K)
    ours = next(line for line in lines if line.name == OURS)
    length = data.x[:, data.features.index("length")].astype(np.float64)
    against = "the interval clears" if ours.low > 0.622 else "the interval includes"
    return Table(
        f"GSM8K before an answer, 5 folds, {SEEDS} split seeds", HEAD, tuple(tuple(line.cells()) for line in lines),
        (
            gap_words(OURS, "longest prompt first", gap_of(data, scores[OURS], [length])),
            f"{against} the published best, 0.622",
        ),
        (
            Target("must", "APGR", ours.apgr, ">=", 0.63), Target("must", "CPT80", ours.cpt80, "<=", 61.0),
            Target("good", "APGR", ours.apgr, ">=", 0.65),
        ),
    )  # fmt: skip


def gsm8k_cascade() -> Table:
    """After the weak model answered: its answer's surface, words and embedding beside the problem's."""
    data = source.gsm8k_answered(tell)
    lines, scores = _compare("GSM8K cascade", data, (OURS, "forest", "kernel", "ridge"), _GSM8K[-1:], cascade=True)
    surface = source.surface_only(data)
    lines.insert(-1, line_of("mean, surface of the answer only", surface, held_out(surface, OURS, SEEDS), cascade=True))
    broken = source.unfinished()
    lines.insert(2, line_of("rule: answer without a final #### to strong", data, [broken], cascade=True))
    whole = broken == 0
    rest = line_of("", data.take(whole), [score[whole] for score in scores[OURS]], cascade=True)
    note = (
        f"{broken.mean():.1%} of the answers were cut off or lack the mark that the scorer reads, and are mostly wrong; "
        f"among the {whole.sum()} finished ones the mean reaches {rest.apgr:.3f} [{rest.low:.3f}, {rest.high:.3f}]."
    )
    ours = next(line for line in lines if line.name == OURS)
    return Table(
        f"GSM8K cascade (the weak answer is seen), 5 folds, {SEEDS} split seeds", HEAD,
        tuple(tuple(line.cells()) for line in lines), (note,),
        (
            Target("must", "APGR", ours.apgr, ">=", 0.655), Target("must", "CPT50", ours.cpt50, "<=", 27.0),
            Target("good", "APGR", ours.apgr, ">=", 0.67), Target("good", "lower bound of APGR", ours.low, ">", 0.622),
        ),
    )  # fmt: skip


def mtbench() -> Table:
    """A rule only: 72 questions cannot rank routers."""
    weak, strong, rule = source.mtbench()
    n = len(weak)
    x = rule.astype(np.float32)[:, None]
    data = RoutingData(("rule",), x, weak / 10, strong / 10, np.arange(n, dtype=np.int32))
    lines = [line_of("rule: math, coding, reasoning to strong", data, [rule.astype(np.float64)]), *_MTBENCH]
    return Table(
        f"MT-bench, {n} questions (report only)", HEAD, tuple(tuple(line.cells()) for line in lines),
        ("An interval this wide ranks nothing; the published best needs 65,000 preferences.",),
        (Target("must", "APGR", lines[0].apgr, ">=", 0.67),),
    )  # fmt: skip


def _shuffled() -> int:
    """Permute which outcome belongs to which row: a router must find no signal."""
    ok = True
    for name, data in (("MMLU", source.mmlu(tell)), ("GSM8K", source.gsm8k(tell))):
        some = data.take(np.random.default_rng(0).permutation(len(data))[:4_000])
        order = np.random.default_rng(1).permutation(len(some))
        mixed = replace(some, weak=some.weak[order], strong=some.strong[order])
        found = judge(mixed, out_of_fold(mixed, LEARNERS[OURS], tell=tell).score)
        ok = ok and not found.signal
        low, high = found.apgr.low, found.apgr.high
        said = "signal" if found.signal else "no signal"
        print(f"{name}, outcomes permuted, {len(mixed)} rows: APGR {found.apgr.mean:.3f} [{low:.3f}, {high:.3f}]: {said}")
    print("no signal" if ok else "A SIGNAL WAS CLAIMED WHERE THERE IS NONE")
    return 0 if ok else 1


_MMLU = published(("RouteLLM, Arena only, matrix factorisation", 0.524, 45.0, 76.9))
_MMLU_FEW = [
    *published(("RouteLLM + 1,500 labels, BERT", 0.572, 41.3, 72.2), ("RouteLLM + 1,500 labels, LLM", 0.600, 35.5, 70.3)),
    *published(("RouteLLM + 1,500 labels, MF", 0.597, 35.5, 71.4), ("RouteLLM + 1,500 labels, SW", 0.603, 35.4, 71.6)),
]
_MMLU += _MMLU_FEW[3:]
_GSM8K = [
    *published(
        ("RouteLLM + 120k judge labels, MF", 0.565, 38.8, 72.6), ("RouteLLM + 120k judge labels, SW", 0.568, 41.2, 72.2)
    ),
    *published(("RouteLLM + 120k judge labels, LLM", 0.622, 33.6, 63.3)),
]
_MTBENCH = published(("RouteLLM + judge, MF", 0.802, np.nan, np.nan), ("RouteLLM, Arena, SW", 0.610, np.nan, np.nan))
PARTS: dict[str, Callable[[], Table]] = {
    "mmlu-1500": mmlu_few, "mmlu": mmlu, "mmlu-subject": mmlu_subject, "mmlu-unseen": mmlu_unseen, "gsm8k": gsm8k,
    "gsm8k-cascade": gsm8k_cascade, "mtbench": mtbench, "headlines": headlines, "transfer": transfer,
    "thresholds": thresholds, "calibration": calibrated, "speed": speed,
}  # fmt: skip

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
