"""The running means that a route's policy reads: handed to it with the view, and brought up to date when a request ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import structs

from rheostat.policies.stand_in import segment_of
from rheostat.pool import Pool
from rheostat.resilience.means import Means
from rheostat.types import Outcome, PoolView, Request

Fields = Mapping[str, tuple[str | None, ...]]
"""By model: the fields of meta whose values are segments (None: all requests are one)."""


def with_means(view: PoolView, means: Means, fields: Fields, request: Request, pool: Pool) -> PoolView:
    """Return the view with the means that may stand in for models, as they are now."""
    told = dict(view)
    for model, names in fields.items():
        if model in told:
            segments = {segment_of(request, name) for name in names}
            found = means.of(model, pool[model].settings.version, segments)
            if found:
                told[model] = structs.replace(told[model], means=found)
    return told


def note_means(means: Means, fields: Fields, request: Request, outcomes: Sequence[Outcome]) -> None:
    """Take in what the models themselves said; a peer's answer is not theirs."""
    for outcome in outcomes:
        names = fields.get(outcome.model)
        said = outcome.prediction
        if names is not None and said is not None and said.scores and outcome.served_by == outcome.model:
            means.note(outcome.model, outcome.version, {segment_of(request, name) for name in names}, said.scores)
