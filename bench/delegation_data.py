"""What the delegation study works on: two models' scores, what is known of each row, and the feedback label."""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import xxhash

from bench import rankers as rankers_module
from bench import table_models
from bench.labelled import NAMES, SPLITS, Rows, data_folder, read_set
from bench.rankers import Row, crossed, factored, genres
from rheostat.lab.weights import past
from rheostat.lab.weights.past import earlier_mean

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from bench.fits import Floats

    Tell = Callable[[str], None]

SEEDS = (0, 1, 2)
MODELS = ("small", "large")
COST = (1.0, 4.0)
FOLDS = 4
CACHE = Path(".cache/delegation")
MOVIELENS = "movielens_small"
SHOPPERS = "online_shoppers"
SHOWN = {MOVIELENS: "MovieLens latest-small of 2016 (Harper and Konstan 2015)", SHOPPERS: NAMES[SHOPPERS]}


class Rankings(msgspec.Struct, frozen=True):
    """Scores of two models with what a decision may look at; every mapping is by split, a row per request.

    `scores` (n x models) are chances of label 1; those of train are out of fold, so that a model is not judged on rows it
    has seen. `features` (n x feature_names) are known when the request comes: of train rows, from other folds or earlier
    rows only. `truth` is 0 or 1; `users` (the row's own number where rows have no user) is what intervals are clustered by.
    """

    name: str
    seed: int
    models: tuple[str, ...]
    cost: tuple[float, ...]
    scores: Mapping[str, Floats]
    features: Mapping[str, Floats]
    feature_names: tuple[str, ...]
    truth: Mapping[str, NDArray[np.int64]]
    users: Mapping[str, NDArray[np.int64]]


def why_no_rankings(name: str) -> str | None:
    """Return what to do when the study cannot read its set, or None when it can."""
    folder = data_folder() / "datasets" / name
    if all((folder / f"{split}.jsonl.gz").is_file() for split in SPLITS):
        return None
    return (
        f"{name} skipped: {SHOWN[name]} is not shipped; put its splits into {folder}/<split>.jsonl.gz, or set RHEOSTAT_DATA"
    )


def rankers(tell: Tell, seeds: Sequence[int] = SEEDS) -> tuple[Rankings, ...]:
    """Return the MovieLens rankings, one per seed of the large model; trained once, then from `.cache`."""
    folder = data_folder() / "datasets" / MOVIELENS
    rows = {split: _read(folder / f"{split}.jsonl.gz") for split in SPLITS}
    return tuple(_kept(MOVIELENS, seed, rows, lambda s: _movielens(rows, s, tell), tell) for seed in seeds)


def shoppers(tell: Tell) -> Rankings:
    """Return the Online Shoppers scores (needs LightGBM): the large model knows all that the small one knows."""
    sets = read_set(SHOPPERS)
    rows = {split: sets[split].inputs for split in SPLITS}
    return _kept(SHOPPERS, 0, rows, lambda seed: _shoppers(sets, seed, tell), tell)


def _movielens(rows: Mapping[str, list[Row]], seed: int, tell: Tell) -> Rankings:
    train, dev = rows["train"], rows["dev"]
    truth = {split: np.array([row["label"] for row in rows[split]]) for split in SPLITS}
    fold = np.random.default_rng(seed).integers(0, FOLDS, len(train))
    scores = {split: np.zeros((len(rows[split]), 2)) for split in SPLITS}
    seen = {split: np.zeros((len(rows[split]), 2)) for split in SPLITS}
    for out in range(FOLDS):
        inside = [row for row, at in zip(train, fold, strict=True) if at != out]
        held = [row for row, at in zip(train, fold, strict=True) if at == out]
        scores["train"][fold == out] = _asked(inside, dev, seed, tell, held)[0]
        seen["train"][fold == out] = _seen(inside, held)
    scores["dev"], scores["test"] = _asked(train, dev, seed, tell, dev, rows["test"])
    for split in ("dev", "test"):
        seen[split] = _seen(train, rows[split])
    known, names = _known(rows, truth, scores, seen)
    users = {split: np.array([row["user"] for row in rows[split]]) for split in SPLITS}
    return Rankings(MOVIELENS, seed, MODELS, COST, scores, known, names, truth, users)


def _asked(train: list[Row], dev: list[Row], seed: int, tell: Tell, *asked: list[Row]) -> list[Floats]:
    pair = (crossed(train, dev, tell), factored(train, dev, seed, tell))
    return [np.stack([ask(rows) for ask in pair], axis=1) for rows in asked]


def _seen(train: Sequence[Row], rows: Sequence[Row]) -> Floats:
    """How many training rows of the row's user and of its item the models had (log scale)."""
    columns = []
    for name in ("user", "item"):
        values, counts = np.unique([row[name] for row in train], return_counts=True)
        many = dict(zip(values.tolist(), counts.tolist(), strict=True))
        columns.append([many.get(row[name], 0) for row in rows])
    found: Floats = np.log1p(np.array(columns, dtype=np.float64).T)
    return found


def _known(
    rows: Mapping[str, list[Row]], truth: Mapping[str, Any], scores: Mapping[str, Floats], seen: Mapping[str, Floats]
) -> tuple[dict[str, Floats], tuple[str, ...]]:
    """What is known of a request: how often its user and item were seen, how they were liked, and how the models did.

    Rates and losses are means over strictly earlier training rows. The models' losses there are of their out-of-fold
    scores, the only ones that say what to expect of a fresh row.
    """
    whole = [row for split in SPLITS for row in rows[split]]
    when = np.array([row["ts"] for row in whole])
    fresh = len(whole) - len(rows["train"])
    label, chance = truth["train"], np.clip(scores["train"], 1e-6, 1.0 - 1e-6)
    losses = -np.where(label[:, None] == 1, np.log(chance), np.log(1.0 - chance))
    gap = losses[:, 0] - losses[:, 1]  # above 0 where the large model did better
    columns: dict[str, Floats] = {}
    for name in ("user", "item"):
        keys = [row[name] for row in whole]
        for word, values in (("liked", label.astype(np.float64)), ("loss", losses.mean(axis=1)), ("gap", gap)):
            known = np.concatenate([values, np.full(fresh, np.nan)])
            columns[f"{name}_{word}"] = earlier_mean(keys, known, when, float(values.mean()))
    columns["genres"] = np.array([len(genres(row)) for row in whole], dtype=np.float64)
    columns["year"] = np.array([float(row["year"] or 1995) for row in whole])
    table = np.concatenate(
        [np.concatenate([seen[split] for split in SPLITS]), np.stack([*columns.values()], axis=1)], axis=1
    )
    cuts = np.cumsum([len(rows[split]) for split in SPLITS])[:-1]
    return dict(zip(SPLITS, np.split(table, cuts), strict=True)), ("user_seen", "item_seen", *columns)


def _shoppers(sets: Mapping[str, Rows], seed: int, tell: Tell) -> Rankings:
    codes = {split: np.array([int(label) for label in sets[split].labels]) for split in SPLITS}
    train = sets["train"]
    fold = np.random.default_rng(seed).integers(0, FOLDS, len(train.inputs))
    scores = {split: np.zeros((len(codes[split]), 2)) for split in SPLITS}

    def ask(inside: NDArray[np.bool_], held: Rows, held_codes: Any) -> list[Mapping[str, Floats]]:
        some = Rows([row for row, take in zip(train.inputs, inside, strict=True) if take], [])
        parts = {"train": some, "dev": sets["dev"], "test": held}
        truth = {"train": codes["train"][inside], "dev": codes["dev"], "test": held_codes}
        return [fit(parts, truth).scores for fit in (table_models.logistic, table_models.boosted)]

    for out in range(FOLDS):
        held = Rows([row for row, at in zip(train.inputs, fold, strict=True) if at == out], [])
        found = ask(fold != out, held, codes["train"][fold == out])
        scores["train"][fold == out] = np.stack([each["test"][:, 1] for each in found], axis=1)
        tell(f"  shoppers: fold {out + 1} of {FOLDS}")
    found = ask(np.ones(len(fold), dtype=bool), sets["test"], codes["test"])
    for split in ("dev", "test"):
        scores[split] = np.stack([each[split][:, 1] for each in found], axis=1)
    names = ("ProductRelated", "BounceRates", "ExitRates", "PageValues")
    known = {split: np.array([[float(row[name]) for name in names] for row in sets[split].inputs]) for split in SPLITS}
    users = {split: np.arange(len(codes[split])) for split in SPLITS}
    return Rankings(SHOPPERS, seed, MODELS, COST, scores, known, names, codes, users)


def _read(path: Path) -> list[Row]:
    with gzip.open(path, "rb") as file:
        return [msgspec.json.decode(line) for line in file]


def _kept(name: str, seed: int, rows: Any, make: Callable[[int], Rankings], tell: Tell) -> Rankings:
    """Return the rankings from `.cache`, made anew when the data or the code that makes them changed."""
    digest = xxhash.xxh3_64(msgspec.json.encode(rows))
    for source in (__file__, rankers_module.__file__, table_models.__file__, past.__file__):
        digest.update(Path(str(source)).read_bytes())
    CACHE.mkdir(parents=True, exist_ok=True)
    path = CACHE / f"{name}-{seed}-{digest.hexdigest()}.npz"
    fields = ("scores", "features", "truth", "users")
    if not path.is_file():
        tell(f"{name}, seed {seed}: training the models ({FOLDS} folds and once on all of train) ...")
        made = make(seed)
        arrays: dict[str, Any] = {f"{field}-{split}": getattr(made, field)[split] for field in fields for split in SPLITS}
        draft = path.with_suffix(".part.npz")
        np.savez(draft, names=np.array(made.feature_names), **arrays)
        draft.replace(path)
    with np.load(path) as kept:
        parts = {field: {split: kept[f"{field}-{split}"] for split in SPLITS} for field in fields}
        return Rankings(name, seed, MODELS, COST, feature_names=tuple(kept["names"].tolist()), **parts)
