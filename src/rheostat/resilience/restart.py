"""When a process that ended is started again: at once the first time, ever later while it keeps ending. Pure.

Source: the start limits of process supervisors (systemd's `RestartSec`, Kubernetes' back-off of crashing containers).
"""

from __future__ import annotations

from msgspec import Struct

FIRST_S = 0.5
STEADY_S = 10.0
"""The pause after a second end in a row, in seconds; how long a process lives to begin anew."""


class RestartState(Struct, frozen=True, gc=False):
    """How often in a row a process ended early or did not start."""

    ends: int = 0


def ended(state: RestartState, lived_s: float) -> RestartState:
    """The process ended after `lived_s` seconds in service (0: it never was)."""
    return RestartState(1 if lived_s >= STEADY_S else state.ends + 1)


def pause_s(state: RestartState, longest_s: float) -> float:
    """Return the seconds to wait before it is started: 0 after one end, then 0.5, doubling up to `longest_s`."""
    return 0.0 if state.ends < 2 else min(longest_s, FIRST_S * 2.0 ** min(state.ends - 2, 16))
