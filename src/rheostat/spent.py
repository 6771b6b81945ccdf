"""Budgets with limits for a day go on where they stood before a restart."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from rheostat.errors import StoreError
from rheostat.resilience.allowance import DAY_S
from rheostat.telemetry.spent import spent_since

if TYPE_CHECKING:
    from rheostat.router import Router

_log = logging.getLogger("rheostat.router")


def remember_spent(router: Router) -> None:
    """Count what today's records say was used before this process began; without records in SQLite the day begins anew."""
    records = router.config.records.sqlite
    allowances = {each.name: each for lane in router.plan.lanes.values() for each in lane.allowances}
    lasting = [each for each in allowances.values() if each.settings.tokens_per_day or each.settings.cost_per_day]
    if records is None or not lasting:
        return
    wall = router.clock.wall()
    try:
        found = spent_since(Path(router.loaded.base) / records, wall - wall % DAY_S)
    except StoreError as error:
        _log.warning("budgets begin the day anew, as the records cannot be read: %s", error)
        return
    for spent in found:
        router.engine.allowing.seed(lasting, spent.route, spent.tenant, spent.tokens, spent.cost)
