"""What requests have taken since a moment, read from their records: so that a budget goes on after a restart."""

from __future__ import annotations

import os
from typing import NamedTuple

from rheostat.telemetry.sqlite import SqliteReader

_SQL = """
SELECT route, tenant, sum(coalesce(json_extract(record, '$.tokens'), 0)), sum(coalesce(cost, 0))
FROM record_rows WHERE ts >= ? GROUP BY route, tenant
"""


class Spent(NamedTuple):
    """The tokens and the cost of a tenant's requests on a route."""

    route: str
    tenant: str | None
    tokens: float
    cost: float


def spent_since(path: str | os.PathLike[str], wall: float) -> list[Spent]:
    """Return what the requests that ended at `wall` (seconds since 1970) or later have taken.

    Raises:
        StoreError: the file is absent, damaged, or no record database.
    """
    reader = SqliteReader(path)
    try:
        return [Spent(*row) for row in reader.query(_SQL, (wall,))]
    finally:
        reader.close()
