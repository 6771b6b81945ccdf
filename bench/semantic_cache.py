"""What the meaning of a text is good for before a model is asked: groups by example, and answers given again to a question
that was put in other words.

`python -m bench.semantic_cache`: CLINC150 and Banking77 with a frozen MiniLM. A hit of a semantic cache counts as right when
both questions have the same intent. That is less than is needed: "what is my balance in account A" and "... B" have it too.
"""

from __future__ import annotations

import time

import numpy as np

from bench.embeddings import embed
from bench.labelled import Rows, read_set, why_absent
from rheostat.signals.groups import GroupScorer

GROUPS, REPEATS = 6, 20
THRESHOLDS = (0.3, 0.4, 0.5, 0.6)
CUTS = (0.70, 0.75, 0.80, 0.85, 0.90, 0.95, 0.98)


def tell(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


def interval(hits: int, of: int) -> tuple[float, float]:
    """Return the 95 % interval of a share (Wilson 1927)."""
    if not of:
        return 0.0, 1.0
    z, share = 1.96, hits / of
    middle = (share + z * z / (2 * of)) / (1 + z * z / of)
    spread = z * np.sqrt(share * (1 - share) / of + z * z / (4 * of * of)) / (1 + z * z / of)
    return middle - spread, middle + spread


def _parts(name: str) -> tuple[Rows, Rows]:
    missing = why_absent(name)
    if missing is not None:
        raise SystemExit(missing)
    found = read_set(name)
    return found["train"], found["test"]


def groups() -> None:
    """Six intents of CLINC150 by few examples each, against all test rows: theirs, other intents', and out of scope."""
    train, test = _parts("clinc150_oos")
    x, y = embed(train.inputs, tell), np.array(train.labels)
    tx, ty = embed(test.inputs, tell), np.array(test.labels)
    known = sorted(set(y) - {"oos"})
    dice = np.random.default_rng(0)
    tell(f"\n{GROUPS} of {len(known)} intents by examples, {REPEATS} draws; in: test rows of the six, out: all others")
    tell("| examples | threshold | in: right | in: wrong | in: none | out: some group | out of scope: some group |")
    tell("|---|---|---|---|---|---|---|")
    for count in (3, 5, 10, 20):
        found: dict[float, list[list[float]]] = {cut: [] for cut in THRESHOLDS}
        for _ in range(REPEATS):
            chosen = [str(each) for each in dice.choice(known, GROUPS, replace=False)]
            embedded = [x[dice.choice(np.flatnonzero(y == name), count, replace=False)] for name in chosen]
            means = np.stack([rows.mean(axis=0) / np.linalg.norm(rows.mean(axis=0)) for rows in embedded])
            near = tx @ means.T
            best, top = np.array(chosen)[near.argmax(axis=1)], near.max(axis=1)
            inside, strange = np.isin(ty, chosen), ty == "oos"
            for cut in THRESHOLDS:
                some, right = top >= cut, best == ty
                found[cut].append([
                    np.mean((some & right)[inside]), np.mean((some & ~right)[inside]), np.mean(~some[inside]),
                    np.mean(some[~inside]), np.mean(some[strange]),
                ])  # fmt: skip
        for cut, rows in found.items():
            tell(f"| {count} | {cut:g} | " + " | ".join(f"{value:.1%}" for value in np.mean(rows, axis=0)) + " |")
    scorer = GroupScorer(tuple(chosen), tuple(chosen), None, embedded, 0.4)
    began = time.process_time()
    for vector in tx:
        scorer.compared(vector)
    tell(f"\na decision, the embedding apart: {1e6 * (time.process_time() - began) / len(tx):.1f} us ({GROUPS} groups)")


def cache() -> None:
    """Questions kept from the training rows; every test row is answered by the most similar one, if it is similar enough."""
    for name in ("clinc150_oos", "banking77"):
        train, test = _parts(name)
        kept = {text: label for text, label in zip(train.inputs, train.labels, strict=True) if label != "oos"}
        x, y = embed(list(kept), tell), np.array(list(kept.values()))
        tx, ty = embed(test.inputs, tell), np.array(test.labels)
        near = tx @ x.T
        best, top = near.argmax(axis=1), near.max(axis=1)
        same = sum(text in kept for text in test.inputs)
        tell(f"\n{name}: {len(kept)} questions kept, {len(ty)} asked, {same} of them word for word")
        tell("| similarity | hits | of these with another intent | 95 % interval | hits among out-of-scope rows |")
        tell("|---|---|---|---|---|")
        for cut in CUTS:
            hit = top >= cut
            wrong = int(np.sum(hit & (y[best] != ty)))
            low, high = interval(wrong, int(hit.sum()))
            strange = ty == "oos"
            odd = f"{np.mean(hit[strange]):.1%}" if strange.any() else "-"
            share = f"{wrong / hit.sum():.1%}" if hit.any() else "-"
            tell(f"| {cut:.2f} | {np.mean(hit):.1%} | {share} | {low:.1%} to {high:.1%} | {odd} |")
        worst = np.flatnonzero((top >= 0.9) & (y[best] != ty))[:4]
        for row in worst:
            asked, answered = f"{test.inputs[row]!r} ({ty[row]})", f"{list(kept)[best[row]]!r} ({y[best[row]]})"
            tell(f"  {top[row]:.3f}: {asked} would get the answer to {answered}")


if __name__ == "__main__":
    groups()
    cache()
