"""Two rankers for "will this user like this film" that know different things: crosses with a user's taste, and factors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from bench.fits import Floats

Row = Mapping[str, Any]

_EPOCHS, _PATIENCE, _BATCH = 20, 2, 512
_FACTORS, _HIDDEN, _DROP = 16, 64, 0.3
_RATE, _SHRINK = 1e-3, 0.1
_STEPS = 500


def crossed(train: Sequence[Row], dev: Sequence[Row], tell: Callable[[str], None]) -> Callable[[Sequence[Row]], Floats]:
    """Fit logistic regression on user, item, user x genre and user x decade; its strength is chosen on dev.

    Returns what gives each row's chance of a like. A level that was not seen in training counts as none.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss

    place: dict[Any, int] = {}
    for row in train:
        for level in _levels(row):
            place.setdefault(level, len(place))
    truth, x, fresh = _labels(train), _sparse(train, place), _sparse(dev, place)
    best, least = None, np.inf
    for strength in (0.1, 0.3, 1.0):
        model = LogisticRegression(C=strength, solver="liblinear", max_iter=_STEPS).fit(x, truth)
        loss = log_loss(_labels(dev), model.predict_proba(fresh)[:, 1])
        if loss < least:
            best, least = model, loss
    found = best
    if found is None or int(np.max(found.n_iter_)) >= _STEPS:
        raise RuntimeError(
            f"the crosses had not converged after {_STEPS} iterations; figures would be of an unfinished model"
        )
    tell(f"  crosses: log loss on dev {least:.4f}, converged after {int(np.max(found.n_iter_))} iterations")

    def ask(rows: Sequence[Row]) -> Floats:
        chances: Floats = found.predict_proba(_sparse(rows, place))[:, 1]
        return chances

    return ask


def factored(
    train: Sequence[Row], dev: Sequence[Row], seed: int, tell: Callable[[str], None]
) -> Callable[[Sequence[Row]], Floats]:
    """Fit a factorisation machine with a small net over the same factors; it stops early on dev.

    Fields: user, item, decade, genres (mean of their factors). Source: Guo et al., DeepFM (IJCAI 2017).
    """
    import torch

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    place = {name: _numbered(train, name) for name in ("user", "item", "decade", "genre")}
    columns, fresh = _columns(train, place), _columns(dev, place)
    truth, goal = torch.tensor(_labels(train), dtype=torch.float32), torch.tensor(_labels(dev), dtype=torch.float32)
    net = _net({name: len(known) + 1 for name, known in place.items()})
    adam = torch.optim.Adam(net.parameters(), _RATE)
    loss_of = torch.nn.functional.binary_cross_entropy_with_logits
    least, kept, waited, best = np.inf, net.state_dict(), 0, 0
    for epoch in range(_EPOCHS):
        net.train()
        order = torch.randperm(len(truth))
        for start in range(0, len(order), _BATCH):
            batch = order[start : start + _BATCH]
            adam.zero_grad()
            odds, size = net([column[batch] for column in columns])
            (loss_of(odds, truth[batch]) + _SHRINK * size).backward()
            adam.step()
        net.eval()
        with torch.no_grad():
            loss = float(loss_of(net(fresh)[0], goal))
        waited = 0 if loss < least else waited + 1
        if loss < least:
            best = epoch + 1
            least, kept = loss, {name: value.clone() for name, value in net.state_dict().items()}
        if waited >= _PATIENCE:
            break
    if waited < _PATIENCE:
        raise RuntimeError(f"the factors were still getting better after {_EPOCHS} epochs; let them train longer")
    net.load_state_dict(kept)
    net.eval()
    tell(f"  factors, seed {seed}: log loss on dev {least:.4f}, best at epoch {best}, stopped {_PATIENCE} later")

    def ask(rows: Sequence[Row]) -> Floats:
        with torch.no_grad():
            chances: Floats = torch.sigmoid(net(_columns(rows, place))[0]).double().numpy()
        return chances

    return ask


def genres(row: Row) -> list[str]:
    """Return the film's genres."""
    return str(row["genres"]).split("|")


def _decade(row: Row) -> str:
    return str(row["year"] or "")[:3]


def _labels(rows: Sequence[Row]) -> NDArray[np.int64]:
    return np.array([row["label"] for row in rows])


def _levels(row: Row) -> list[Any]:
    user = row["user"]
    taste = [("like", user, each) for each in genres(row)]
    return [("user", user), ("item", row["item"]), ("decade", user, _decade(row)), *taste]


def _sparse(rows: Sequence[Row], place: Mapping[Any, int]) -> Any:
    from scipy.sparse import csr_matrix

    cells = [(at, place[level]) for at, row in enumerate(rows) for level in _levels(row) if level in place]
    where = np.array(cells, dtype=np.int64).reshape(-1, 2).T
    return csr_matrix((np.ones(where.shape[1]), tuple(where)), shape=(len(rows), len(place)))


def _values(row: Row, name: str) -> list[Any]:
    return genres(row) if name == "genre" else [_decade(row) if name == "decade" else row[name]]


def _numbered(rows: Sequence[Row], name: str) -> dict[Any, int]:
    return {value: code for code, value in enumerate(dict.fromkeys(each for row in rows for each in _values(row, name)))}


def _columns(rows: Sequence[Row], place: Mapping[str, Mapping[Any, int]]) -> list[Any]:
    import torch

    single = [
        torch.tensor([place[name].get(_values(row, name)[0], len(place[name])) for row in rows])
        for name in ("user", "item", "decade")
    ]
    known = place["genre"]
    several = torch.zeros(len(rows), len(known) + 1)
    for at, row in enumerate(rows):
        for each in genres(row):
            several[at, known.get(each, len(known))] = 1.0
    return [*single, several / several.sum(dim=1, keepdim=True)]


def _net(sizes: Mapping[str, int]) -> Any:
    import torch
    from torch import nn

    class Factors(nn.Module):  # type: ignore[misc]
        """Main effects, pairwise products of factors, and a net over the factors; also the factors' mean size."""

        def __init__(self) -> None:
            super().__init__()
            self.effects = nn.ModuleList([nn.Embedding(size, 1) for size in sizes.values()])
            self.factors = nn.ModuleList([nn.Embedding(size, _FACTORS) for size in sizes.values()])
            for each in self.effects:
                nn.init.zeros_(each.weight)
            for each in self.factors:
                nn.init.normal_(each.weight, 0.0, 0.01)
            self.base = nn.Parameter(torch.zeros(1))
            self.deep = nn.Sequential(
                nn.Linear(len(sizes) * _FACTORS, _HIDDEN), nn.ReLU(), nn.Dropout(_DROP), nn.Linear(_HIDDEN, 1)
            )

        def forward(self, columns: list[Any]) -> tuple[Any, Any]:
            one, many = columns[:-1], columns[-1]
            effects = [table(codes) for table, codes in zip(self.effects, one, strict=False)]
            effects.append(many @ self.effects[-1].weight)
            parts = [table(codes) for table, codes in zip(self.factors, one, strict=False)]
            parts.append(many @ self.factors[-1].weight)
            whole = torch.stack(parts, dim=1)
            pairs = 0.5 * (whole.sum(dim=1) ** 2 - (whole**2).sum(dim=1)).sum(dim=1)
            odds = self.base + torch.cat(effects, dim=1).sum(dim=1) + pairs + self.deep(whole.flatten(1))[:, 0]
            size = sum((part**2).sum(dim=1).mean() for part in [*parts[:2], *effects[:2]])
            return odds, size

    return Factors()
