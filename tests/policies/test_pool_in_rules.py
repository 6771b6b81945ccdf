"""What a rule may read of a model's state."""

from __future__ import annotations

import pytest

from rheostat.policies import parse_policy
from rheostat.types import Call, Context, ModelView, Request

VIEW = ModelView("a", limit=8, queued=3, in_flight=8, ramp=0.25, error_rate=0.5, throughput=4.0, quality=0.9)


@pytest.mark.parametrize(
    ("when", "use"),
    [
        ("pool.a.queued >= 3 && pool.a.in_flight >= pool.a.limit", "b"),
        ("pool.a.ramp < 1.0", "b"),
        ("pool.a.error_rate > 0.4", "b"),
        ("pool.a.throughput < 5.0", "b"),
        ("pool.a.quality > 0.95", "a"),
        ("pool.a.nothing_of_the_kind > 0", "a"),
    ],
)
def test_a_rule_reads_the_state_of_a_model(when: str, use: str) -> None:
    policy = parse_policy({"chain": [{"rules": [{"when": when, "use": "b"}]}, "a"]})
    decision = policy.decide(Context(Request(id="r", data="x"), {}, {"a": VIEW, "b": ModelView("b")}), ())
    assert isinstance(decision, Call)
    assert decision.models == (use,)
