"""Who is let in: so many requests at a time, the less urgent ones fewer, and so many of a tenant."""

from __future__ import annotations

from collections.abc import Mapping

from rheostat.errors import Overloaded, TooMany
from rheostat.types import Request
from rheostat.types.priority import Priority

_SMOOTHING = 0.05  # of the time a request takes


class Admission:
    """Counts the requests in flight, and how long they take, which is when it makes sense to come back."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.seconds = 0.0
        self._tenants: dict[str, int] = {}

    def enter(self, request: Request, most: int, tenants: Mapping[str, int]) -> str | None:
        """Let a request in; `most` are at a time (0: any number), and of the tenants named so many. Give what this returns
        to `leave`.

        Raises:
            TooMany: its tenant has as many in flight as it may.
            Overloaded: there is no room for a request of its priority.
        """
        tenant = request.tenant if tenants and not request.completing and request.tenant in tenants else None
        if tenant is not None:
            held = self._tenants.get(tenant, 0)
            if held >= tenants[tenant]:
                raise TooMany(f"{held} requests of this tenant are in flight, which is as many as it may have", self.seconds)
        if most and self.in_flight >= (room := room_for(request.priority, most)):
            told = f"{self.in_flight} requests are in flight, and one of {request.priority} priority is let in below {room}"
            raise Overloaded(told, self.seconds)
        if tenant is not None:
            self._tenants[tenant] = held + 1
        self.in_flight += 1
        return tenant

    def leave(self, tenant: str | None, elapsed_s: float) -> None:
        """A request that was let in has ended."""
        self.in_flight -= 1
        self.seconds += _SMOOTHING * (elapsed_s - self.seconds) if self.seconds else elapsed_s
        if tenant is not None:
            self._tenants[tenant] -= 1
            if not self._tenants[tenant]:
                del self._tenants[tenant]


def room_for(priority: Priority, most: int) -> int:
    """Return how many requests may be in flight before one of this priority is refused: 80 % of `most` for low, all of it
    for normal, a tenth more for high; always rounded up."""
    if priority == "low":
        return -(-most * 4 // 5)
    return most if priority == "normal" else most - (-most // 10)
