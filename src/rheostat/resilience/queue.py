"""A fair queue: by rank, then in turn over tenants, then first come. Pure, no I/O."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)
Line = OrderedDict[T, None]


class FairQueue(Generic[T]):
    """Holds waiters, each once; whoever leaves frees the place at once. Lower `rank` numbers go first."""

    def __init__(self) -> None:
        self._lines: dict[int, OrderedDict[str | None, Line[T]]] = {}
        self._where: dict[T, tuple[int, str | None]] = {}

    def __len__(self) -> int:
        return len(self._where)

    def add(self, waiter: T, rank: int, tenant: str | None) -> None:
        """Put a waiter at the end of its tenant's line.

        Raises:
            ValueError: it waits already.
        """
        if waiter in self._where:
            raise ValueError("this waiter is in the queue already")
        self._where[waiter] = (rank, tenant)
        self._lines.setdefault(rank, OrderedDict()).setdefault(tenant, OrderedDict())[waiter] = None

    def remove(self, waiter: T) -> bool:
        """Take a waiter out wherever it stands; False when it does not wait."""
        where = self._where.pop(waiter, None)
        if where is None:
            return False
        rank, tenant = where
        lines = self._lines[rank]
        del lines[tenant][waiter]
        if not lines[tenant]:
            del lines[tenant]
            if not lines:
                del self._lines[rank]
        return True

    def pop(self) -> T | None:
        """Take out who is next, or None; its tenant's turn comes again after the others of that rank."""
        if not self._lines:
            return None
        lines = self._lines[min(self._lines)]
        tenant = next(iter(lines))
        waiter = next(iter(lines[tenant]))
        lines.move_to_end(tenant)
        self.remove(waiter)
        return waiter

    def ahead(self, rank: int, tenant: str | None) -> int:
        """Return how many waiters would go before one that came now, if nobody else came."""
        before = 0
        for other, lines in self._lines.items():
            if other < rank:
                before += sum(map(len, lines.values()))
        lines = self._lines.get(rank, OrderedDict())
        own = len(lines.get(tenant, ()))
        return before + own + sum(min(own + 1, len(line)) for whose, line in lines.items() if whose != tenant)

    def displaced(self, rank: int, tenant: str | None) -> T | None:
        """Return the waiter who has to make room in a full queue for one that comes now, or None; it stays until removed.

        It is the last in the longest line of the worst rank: if that rank is worse than the newcomer's, or the same and its
        tenant would still have no fewer waiters than the newcomer's. So neither those who may wait longer nor a tenant that
        sends much can keep others out.
        """
        if not self._lines:
            return None
        worst = max(self._lines)
        lines = self._lines[worst]
        longest = max(lines.values(), key=len)
        if worst > rank or (worst == rank and len(longest) > len(lines.get(tenant, ())) + 1):
            return next(reversed(longest))
        return None
