"""Which requests are worth explaining: one kept, one rescued, one mixed, and one that went wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from rheostat.demo.clients import Heard, request_id

if TYPE_CHECKING:
    from rheostat.lab.outcomes import Bools, OutcomesTable

_COUNT = 3
_LONGEST = 110  # characters; longer ones are hard to read in an explanation


class Example(Struct, frozen=True):
    """One request: why it is shown, its id in the records, and the right label."""

    title: str
    request: str
    truth: str


def examples(
    test: OutcomesTable, heard: Mapping[str, Sequence[Heard]], cascade: str, blend: str, weak: str
) -> list[Example]:
    """Pick up to three requests, the last fitting one of each sort: the set begins with tweets and ends with editorials.

    Args:
        heard: by route, an answer a row.
        cascade, blend: the routes to look at.
        weak: the model that the last one puts right.
    """
    last = test.models[-1]
    price = float(test.model(last).cost.max(initial=0.0))
    short = np.array([20 <= len(test.request(row).text) <= _LONGEST for row in range(len(test))], dtype=bool)
    right = {route: _right(test, heard[route]) for route in (cascade, blend)}
    asked = {route: np.array([each.cost >= price for each in heard[route]]) for route in (cascade, blend)}
    differ = test.model(weak).label != test.model(last).label
    sorts: list[tuple[str, str, Bools]] = [
        ("sure enough: the cheap answer stands", cascade, right[cascade] & ~asked[cascade]),
        ("not sure: the large model is asked, and puts it right", cascade,
         right[cascade] & asked[cascade] & ~test.correct(weak)),
        ("mixed: the two disagree, and together they are right where the large one is wrong", blend,
         right[blend] & asked[blend] & differ & ~test.correct(last)),
        ("sure and wrong: no threshold catches this", cascade, ~right[cascade] & ~asked[cascade]),
    ]  # fmt: skip
    found: list[Example] = []
    for title, route, fits in sorts:
        rows = np.flatnonzero(fits & short)
        if len(rows) and len(found) < _COUNT:
            row = int(rows[-1])
            found.append(Example(title, request_id(route, test.ids[row]), test.labels[test.truth[row]]))
    return found


def _right(test: OutcomesTable, heard: Sequence[Heard]) -> Bools:
    labels = [test.labels[code] for code in test.truth]
    return np.array([each.label == label for each, label in zip(heard, labels, strict=True)], dtype=bool)
