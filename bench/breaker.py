"""What breaker, ramp and health cost a call that nothing is wrong with: `python -m bench.breaker`."""

from __future__ import annotations

import timeit
from collections.abc import Callable

from rheostat.resilience.breaker import CLOSED, BreakerSettings, failed, succeeded
from rheostat.testing import scripted_model
from rheostat.types import Failure
from rheostat.types.duration import Duration

CALLS = 200_000
ROUNDS = 7


def cost_us(call: Callable[[], object]) -> float:
    """Return the microseconds of one call: the best of some rounds, which is the one least disturbed."""
    return min(timeit.repeat(call, number=CALLS, repeat=ROUNDS)) / CALLS * 1e6


def main() -> None:
    settings = BreakerSettings(slow_seconds=Duration(5.0))
    state = succeeded(CLOSED, settings, 0.0, 0.1)
    model = scripted_model("a", breaker=settings)
    model.begin(0.0)
    model.ended(None, False, 0.1, 0.1)

    def whole() -> None:
        model.begin(0.2)
        model.ended(None, False, 0.1, 0.3)

    off = BreakerSettings(failure_threshold=10**9, error_rate=0.0)
    failing = scripted_model("b", breaker=off)
    failure = Failure("upstream_error", "503")
    rows = [
        ("breaker, a good call while closed", lambda: succeeded(state, settings, 0.2, 0.3)),
        ("breaker, a failed call while closed", lambda: failed(state, settings, 0.2, 0.3)),
        ("model, a call begins and ends well", whole),
        ("model, a call ends badly", lambda: failing.ended(failure, True, 0.1, 0.3)),
        ("model, a view for decisions (at most 50 a second)", lambda: model.view(0.3)),
    ]
    for name, call in rows:
        print(f"{name:52s} {cost_us(call):6.2f} us")


if __name__ == "__main__":
    main()
