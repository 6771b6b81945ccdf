"""A fair queue: by priority, then in turn over tenants, then first come. Pure, no I/O."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class FairQueue(Generic[T]):
    """Holds waiters, each once; whoever leaves frees the place at once. Lower `priority` numbers go first."""

    def __init__(self) -> None:
        self._lines: dict[int, OrderedDict[str | None, OrderedDict[T, None]]] = {}
        self._where: dict[T, tuple[int, str | None]] = {}

    def __len__(self) -> int:
        return len(self._where)

    def add(self, waiter: T, priority: int, tenant: str | None) -> None:
        """Put a waiter at the end of its tenant's line.

        Raises:
            ValueError: it waits already.
        """
        if waiter in self._where:
            raise ValueError("this waiter is in the queue already")
        self._where[waiter] = (priority, tenant)
        self._lines.setdefault(priority, OrderedDict()).setdefault(tenant, OrderedDict())[waiter] = None

    def remove(self, waiter: T) -> bool:
        """Take a waiter out wherever it stands; False when it does not wait."""
        where = self._where.pop(waiter, None)
        if where is None:
            return False
        priority, tenant = where
        lines = self._lines[priority]
        del lines[tenant][waiter]
        if not lines[tenant]:
            del lines[tenant]
            if not lines:
                del self._lines[priority]
        return True

    def pop(self) -> T | None:
        """Take out who is next, or None; its tenant's turn comes again after the others of that priority."""
        if not self._lines:
            return None
        lines = self._lines[min(self._lines)]
        tenant = next(iter(lines))
        waiter = next(iter(lines[tenant]))
        lines.move_to_end(tenant)
        self.remove(waiter)
        return waiter
