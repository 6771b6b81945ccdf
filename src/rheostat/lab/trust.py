"""Can the pool's members and the splits be believed? Checks that go before any talk of routing."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import msgspec
import numpy as np
import xxhash
from msgspec import Struct

from rheostat.lab.bootstrap import Difference, paired_bootstrap
from rheostat.lab.outcomes import SPLITS, Floats, Ints, ModelInfo, OutcomesTable
from rheostat.types import text_of

REGAIN: Final = 0.01
"""Points of dev accuracy that a linear layer over a model's own scores must win back before it counts as under-fitted."""
_FIT_ROWS: Final = 4_000
_FIT_LABELS: Final = 200
OVERFIT_GAP: Final = 0.10
BY_HEART: Final = 0.995
"""Train accuracy from which a large gap to dev may also mean that the label leaked into the features."""

LIKENESS: Final = "Unicode NFKC, case folded, punctuation and white space as one space"
"""The rule by which two inputs count as the same question."""


class Flag(Struct, frozen=True):
    """One thing a reader must know. `kind` is a short fixed word, `about` a model, a split or a file, `text` a sentence."""

    kind: str
    about: str
    text: str


class Member(Struct, frozen=True, kw_only=True):
    """How well one model does on each split (None where there are no usable rows), and how its training ended.

    `regain` is what a linear layer over its own scores adds to its dev accuracy (see `reweighing`).
    """

    model: str
    version: str
    train: float | None
    dev: float | None
    test: float | None
    rows: tuple[int, int, int]
    converged: bool | None
    iterations: int | None
    max_iterations: int | None
    regain: Difference | None


class Overlap(Struct, frozen=True):
    """Inputs that occur in more than one split, by the rule of likeness; `groups` counts distinct inputs."""

    groups: int
    repeated: int
    crossing: int
    test_rows: int


class Trust(Struct, frozen=True):
    """The members, the flags, and the overlap of splits (None when the table kept no inputs)."""

    members: tuple[Member, ...]
    flags: tuple[Flag, ...]
    overlap: Overlap | None


def trust(table: OutcomesTable, stages: Sequence[str] | None = None) -> Trust:
    """Check every model and the splits.

    Args:
        stages: cheapest first; each is also compared with the one before it. By default the table's order.
    """
    names = tuple(stages) if stages is not None else table.models
    members = tuple(_member(table, name) for name in names)
    flags: list[Flag] = []
    for member in members:
        flags += _training_flags(member)
        flags += _guess_flags(table, member.model)
        flags += _source_flags(member.model, table.model_info[member.model], table)
    flags += [flag for low, high in pairwise(members) for flag in _order_flags(table, low, high)]
    overlap = overlaps(table)
    if overlap is not None and overlap.crossing:
        text = (
            f"{overlap.crossing} of {overlap.groups} distinct inputs occur in more than one split ({overlap.test_rows} test "
            f"rows are repeats of train or dev rows); models look better on questions they have seen"
        )
        flags.append(Flag("split overlap", "splits", text))
    return Trust(members, tuple(flags), overlap)


def _member(table: OutcomesTable, name: str) -> Member:
    info = table.model_info[name]
    usable = table.complete((name,))
    right = table.correct(name)
    rows, accuracies = [], []
    for code in range(len(SPLITS)):
        mask = usable & (table.split == code)
        rows.append(int(mask.sum()))
        accuracies.append(float(right[mask].mean()) if mask.any() else None)
    card = info.card
    train = accuracies[0] if accuracies[0] is not None or card is None else card.train_accuracy
    dev = accuracies[1] if accuracies[1] is not None or card is None else card.dev_accuracy
    return Member(
        model=name,
        version=info.version,
        train=train,
        dev=dev,
        test=accuracies[2],
        rows=(rows[0], rows[1], rows[2]),
        converged=card.converged if card is not None else None,
        iterations=card.iterations if card is not None else None,
        max_iterations=card.max_iterations if card is not None else None,
        regain=reweighing(table, name),
    )


def reweighing(table: OutcomesTable, name: str) -> Difference | None:
    """Return how much dev accuracy a linear layer over a model's own log scores adds, the layer being fitted on train.

    A linear classifier's log scores are linear in its features, so re-weighing them stays inside what it could have
    learned: at a finished fit nothing is left to win. A fit that stopped early, or was held small by strong
    regularisation, leaves accuracy that its own scores still hold, and the layer wins it back on rows that neither has
    seen. Only the score columns are needed. It tells nothing about a model that is right on (nearly) all its train
    rows: there the layer learns to agree. On real text models it found what cost 5 points or more of dev accuracy, missed
    smaller losses, and accused no finished fit; the trainer's own word on convergence stays the sharper sign.
    The layer is matrix scaling (Guo et al., 2017, section 4.2), fitted on train.

    Returns None without score distributions on both splits, with too few rows, or with more than 200 labels.
    """
    columns = table.model(name)
    if columns.scores is None or not 2 <= columns.scores.shape[1] <= _FIT_LABELS:
        return None
    usable = table.complete((name,)) & ~np.isnan(columns.scores).any(axis=1)
    train, dev = np.flatnonzero(usable & (table.split == 0)), np.flatnonzero(usable & (table.split == 1))
    train = train[np.unique(np.linspace(0, len(train) - 1, min(len(train), _FIT_ROWS)).astype(int))] if len(train) else train
    if len(train) < 50 or len(dev) < 50 or len(np.unique(table.truth[train])) < 2:
        return None
    logs = np.log(np.clip(columns.scores[np.concatenate([train, dev])].astype(np.float64), 1e-12, None))
    logs -= logs.mean(axis=1, keepdims=True)
    again = logs[len(train) :] + _layer(logs[: len(train)], table.truth[train], logs[len(train) :])
    right = again.argmax(axis=1) == table.truth[dev]
    return paired_bootstrap(right.astype(np.float64), table.correct(name)[dev].astype(np.float64))


def _layer(logs: Floats, truth: Ints, fresh: Floats) -> Floats:
    """Fit `logs + scaled(logs) @ W + b` to `truth` by maximum likelihood with a ridge on W; return what it adds to `fresh`.

    The ridge pulls towards no change, so a layer with nothing to win stays out of the way however few rows there are.
    """
    from scipy.optimize import minimize
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    n, labels = logs.shape
    spread = max(float(logs.std()), 1e-9)
    seen = np.hstack([logs / spread, np.ones((n, 1))])
    rows = np.arange(n)
    ridge = np.ones((labels + 1, 1)) / n
    ridge[-1] = 0.0

    def loss(flat: Floats) -> tuple[float, Floats]:
        layer = flat.reshape(labels + 1, labels)
        raised = logs + seen @ layer
        raised -= raised.max(axis=1, keepdims=True)
        shares = np.exp(raised)
        total = shares.sum(axis=1, keepdims=True)
        value = float((np.log(total[:, 0]) - raised[rows, truth]).mean() + 0.5 * (ridge * layer**2).sum())
        shares /= total
        shares[rows, truth] -= 1.0
        return value, (seen.T @ shares / n + ridge * layer).ravel()

    start = np.zeros((labels + 1) * labels)
    with threadpool_limits(1):  # products this small only get slower on more cores
        found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 60})
    layer = found.x.reshape(labels + 1, labels)
    added: Floats = np.hstack([fresh / spread, np.ones((len(fresh), 1))]) @ layer
    return added


def _guess_flags(table: OutcomesTable, name: str) -> list[Flag]:
    """A model that one fixed answer equals has learned nothing that accuracy shows."""
    dev = table.complete((name,)) & (table.split == 1)
    truth = table.truth[dev]
    if not len(truth) or len(np.unique(truth)) < 2:
        return []
    constant = (truth == np.bincount(truth).argmax()).astype(np.float64)
    right = table.correct(name)[dev].astype(np.float64)
    if paired_bootstrap(right, constant).better:
        return []
    text = f"not clearly better on dev ({right.mean():.2%}) than always saying the commonest label ({constant.mean():.2%})"
    return [Flag("no better than a constant", name, text)]


def _training_flags(member: Member) -> list[Flag]:
    flags: list[Flag] = []
    name = member.model
    if member.converged is False:
        steps = f" after {member.iterations} iterations" if member.iterations is not None else ""
        flags.append(Flag("under-trained", name, f"its training stopped{steps} before it had converged"))
    if member.regain is not None and member.regain.better and member.regain.mean >= REGAIN:
        text = (
            "under-fitted: stopped early, over-regularised, or not fitted to its labels at all. "
            "Its own scores, re-weighed by a linear layer fitted on train, "
            f"are right {member.regain.mean * 100:.1f} points more often on dev [{member.regain.low * 100:.1f}, "
            f"{member.regain.high * 100:.1f}]; a finished fit leaves nothing to win back this way"
        )
        flags.append(Flag("under-trained", name, text))
    if member.train is not None and member.dev is not None and member.train - member.dev >= OVERFIT_GAP:
        text = f"train accuracy {member.train:.2%} is far above dev {member.dev:.2%}: it knows its rows by heart (overfit)"
        if member.train >= BY_HEART:
            text += ", or saw the label in its features (leak)"
        flags.append(Flag("overfit", name, text))
    return flags


def _order_flags(table: OutcomesTable, low: Member, high: Member) -> list[Flag]:
    """A dearer model that is worse on the very rows it was trained on has not been trained enough (or is too simple).

    Against a cheaper model that knows its rows by heart the train rows say nothing; then dev alone must show it clearly.
    """
    if low.train is None or high.train is None or low.dev is None or high.dev is None:
        return []
    if high.train >= low.train or high.dev > low.dev:
        return []
    if low.train - low.dev >= OVERFIT_GAP:
        dev = table.complete((low.model, high.model)) & (table.split == 1)
        rivals = [table.correct(name)[dev].astype(np.float64) for name in (low.model, high.model)]
        if not dev.any() or not paired_bootstrap(*rivals).better:
            return []
    text = (
        f"worse than {low.model} on train ({high.train:.2%} against {low.train:.2%}) and on dev ({high.dev:.2%} "
        f"against {low.dev:.2%}): the dearer model is under-trained or not the better one"
    )
    return [Flag("large worse", high.model, text)]


def _source_flags(name: str, info: ModelInfo, table: OutcomesTable) -> list[Flag]:
    if info.card is None or info.card.data_hash is None:
        return []
    return [
        Flag("own training file", name, f"it was trained on {source.name}, whose rows stand here as {source.split}")
        for source in table.sources
        if source.hash == info.card.data_hash and source.split != "train"
    ]


_GAPS: Final = re.compile(r"[\W_]+")


def likeness(text: str) -> str:
    """Return what two inputs have in common when they count as the same question (see LIKENESS)."""
    return _GAPS.sub(" ", unicodedata.normalize("NFKC", text).casefold()).strip()


def _key(row: int, raw: str | None) -> str:
    """Texts by likeness; features exactly as they are, since there a sign or a point matters."""
    if raw is None:
        return f"\x00{row}"
    text = text_of(msgspec.json.decode(raw))
    return likeness(text) or text or raw


def groups(table: OutcomesTable) -> np.ndarray[tuple[int], np.dtype[np.uint64]] | None:
    """Return a number per row that is equal for inputs that count as the same; None when inputs were not kept.

    An input without any letter or digit is like itself only.
    """
    if table.inputs is None:
        return None
    keys = (_key(row, text) for row, text in enumerate(table.inputs))
    hashes = (xxhash.xxh3_64_intdigest(key.encode("utf-8", "surrogatepass")) for key in keys)
    return np.fromiter(hashes, dtype=np.uint64, count=len(table))


def overlaps(table: OutcomesTable) -> Overlap | None:
    """Count inputs that stand in more than one split; None when inputs were not kept."""
    keys = groups(table)
    if keys is None:
        return None
    distinct, group, counts = np.unique(keys, return_inverse=True, return_counts=True)
    seen = np.zeros((len(distinct), len(SPLITS)), dtype=bool)
    seen[group, table.split] = True
    repeats = (table.split == 2) & seen[group, :2].any(axis=1)
    return Overlap(len(distinct), int((counts > 1).sum()), int((seen.sum(axis=1) > 1).sum()), int(repeats.sum()))
