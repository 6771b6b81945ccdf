"""The report's part on single models: accuracy, training, confidence, confusions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from rheostat.lab.bootstrap import Difference
from rheostat.lab.markup import Content, Safe, bullets, joined, picture, table, tag
from rheostat.lab.outcomes import OutcomesTable
from rheostat.lab.plots import Sureness, confidence_error, reliability, risk
from rheostat.lab.reliability import CONFIDENCE_CUTS, aurc, auroc, brier, confidence_errors, ece, excess_aurc
from rheostat.lab.trust import LIKENESS, Trust

MATRIX: Final = 15
"""Up to so many labels the confusions are a matrix, beyond it a list."""
_LISTED: Final = 12


def points(gap: Difference) -> Safe:
    """Return a difference in points with its interval, coloured by the side of zero it lies on."""
    text = f"{gap.mean * 100:+.2f} [{_edge(gap.low)}, {_edge(gap.high)}]"
    return tag("span", text, "good" if gap.better else "bad" if gap.worse else "soft")


def _edge(value: float) -> str:
    """A bound in points; two digits where one would hide on which side of zero it lies."""
    return f"{value * 100:+.1f}" if abs(value) >= 0.001 else f"{value * 100:+.2f}"


def _maybe(value: float | None) -> str:
    return "–" if value is None else f"{value:.2%}"


def members(trusted: Trust) -> Safe:
    """Return every model's accuracy by split, how its training ended, its flags, and the repeats across splits."""
    head = ["model", "version", "train", "dev", "test", "rows (train/dev/test)", "converged", "iterations",
            "regained by re-weighing", "flags"]  # fmt: skip
    rows: list[list[Content]] = []
    for member in trusted.members:
        flags = [flag for flag in trusted.flags if flag.about == member.model]
        steps = "–" if member.iterations is None else f"{member.iterations} of {member.max_iterations or '?'}"
        ended = {True: "yes", False: "no", None: "not said"}[member.converged]
        drop: Content = "–" if member.regain is None else points(member.regain)
        marks: Content = tag("span", ", ".join(dict.fromkeys(flag.kind for flag in flags)), "warn") if flags else "none"
        rows.append([member.model, member.version, _maybe(member.train), _maybe(member.dev), _maybe(member.test),
                     "/".join(map(str, member.rows)), ended, steps, drop, marks])  # fmt: skip
    overlap = trusted.overlap
    told = (
        f"Inputs count as the same by: {LIKENESS}. {overlap.groups} distinct inputs, {overlap.repeated} of them more than "
        f"once, {overlap.crossing} in more than one split; {overlap.test_rows} test rows repeat a train or dev row."
        if overlap is not None
        else "The table kept no inputs, so repeated questions across splits could not be looked for."
    )
    return joined([table(head, rows, text=[9]), tag("p", told, "soft")])


def confidences(part: OutcomesTable, stages: Sequence[str]) -> Safe:
    """Return what each model's confidence is worth on these rows, as tables and pictures."""
    sure, rows, bands, silent = [], [], [], []
    for name in stages:
        columns = part.model(name)
        mask = part.complete((name,))
        given = mask & ~np.isnan(columns.confidence)
        if mask.sum() > given.sum():
            silent.append(f"{name}: {int(mask.sum() - given.sum())} answers without a confidence are left out here")
        if not given.any():
            continue
        confidence = columns.confidence[given]
        correct = part.correct(name)[given].astype(np.float64)
        sure.append(Sureness(name, confidence, correct))
        rows.append([name, str(int(given.sum())), f"{correct.mean():.2%}", f"{confidence.mean():.3f}",
                     f"{ece(confidence, correct):.3f}", f"{brier(confidence, correct):.4f}",
                     f"{auroc(confidence, correct):.3f}", f"{aurc(confidence, correct):.4f}",
                     f"{excess_aurc(confidence, correct):.4f}"])  # fmt: skip
        table_of = confidence_errors(confidence, correct)
        bands.append([name, *(
            f"{b.rows / len(correct):.0%}, {1 - b.accuracy:.1%} wrong" if b.rows else "–" for b in table_of
        )])  # fmt: skip
    if not sure:
        return tag("p", "No model gave a confidence; a cascade has nothing to decide by.")
    edges = [0.0, *CONFIDENCE_CUTS, 1.0]
    band_heads = [f"{low:g} to {high:g}" for low, high in pairwise(edges)]
    pictures = [
        picture(reliability(sure), "On the diagonal a confidence means what it says.", "reliability diagram"),
        picture(risk(sure), "Error if only the surest answers are accepted.", "risk-coverage curve"),
        picture(confidence_error(sure, CONFIDENCE_CUTS), "How often each band is wrong.", "confidence-error bars"),
    ]
    heads = ["model", "rows", "accuracy", "mean confidence", "ECE", "Brier", "AUROC", "AURC", "excess AURC"]
    return joined(
        [
            table(heads, rows),
            table(["model", *band_heads], bands),
            bullets(silent),
            tag("div", joined(pictures), "grid three"),
        ]
    )


def confusions(part: OutcomesTable, name: str) -> Safe:
    """Return what one model takes for what: a matrix for few labels, the commonest pairs for many."""
    rows = np.flatnonzero(part.complete((name,)))
    truth, said = part.truth[rows], part.model(name).label[rows]
    labels = part.labels
    used = np.unique(np.concatenate([truth, said]))
    if len(used) <= MATRIX:
        place = {int(code): index for index, code in enumerate(used)}
        matrix = np.zeros((len(used), len(used)), int)
        np.add.at(matrix, ([place[int(c)] for c in truth], [place[int(c)] for c in said]), 1)
        body: list[list[Content]] = [
            [labels[code], *(tag("span", str(n), "good" if i == j else "") for j, n in enumerate(matrix[i]))]
            for i, code in enumerate(used)
        ]
        return joined([tag("h3", name), table(["right label ↓, said →", *(labels[code] for code in used)], body)])
    wrong = truth != said
    pairs, counts = np.unique(np.stack([truth[wrong], said[wrong]], axis=1), axis=0, return_counts=True)
    total = np.bincount(truth, minlength=len(labels))
    top = np.argsort(-counts, kind="stable")[:_LISTED]
    listed = [
        [labels[pairs[i, 0]], labels[pairs[i, 1]], str(counts[i]), f"{counts[i] / total[pairs[i, 0]]:.0%}"] for i in top
    ]
    head = ["right label", "said", "rows", "of that label"]
    return joined([tag("h3", f"{name}: the {len(top)} commonest of {len(counts)} confusions"), table(head, listed)])
