from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest
from lab_tables import columns, synthetic, table

from rheostat.lab.outcomes import FAILURE_KINDS, ModelInfo
from rheostat.lab.replay import replay
from rheostat.policies import Binary, Blend, Cascade, Delegate, Use, parse_policy
from rheostat.resilience.ladder import FallbackSettings, Preset
from rheostat.types import Answer, Call, Context, Outcome, Request

CRASHED = 1 + FAILURE_KINDS.index("crashed")


def test_sequential_calls_add_up_and_parallel_ones_overlap() -> None:
    made = table([1], {"small": columns([0], [0.5], latency=0.5, cost=1), "large": columns([1], [0.75], latency=2, cost=8)})
    one = replay(Cascade(stages=("small", "large"), threshold=0.75), made)
    assert (one.latency_s[0], one.cost[0], one.correct[0]) == (2.5, 9.0, True)
    assert one.called.tolist() == [[True, True]]
    assert one.weights.tolist() == [[0.0, 1.0]]
    both = replay(Cascade(stages=("small", "large"), threshold=0.75, parallel=True), made)
    assert (both.latency_s[0], both.cost[0]) == (2.0, 9.0)


def test_a_cancelled_call_counts() -> None:
    made = table([0], {"small": columns([0], [0.9], latency=0.5, cost=1), "large": columns([1], latency=2, cost=8)})
    found = replay(Cascade(stages=("small", "large"), threshold=0.75, parallel=True), made)
    assert found.cancelled.tolist() == [[False, True]]
    assert (found.latency_s[0], found.cost[0], found.share("large")) == (0.5, 9.0, 1.0)


def test_a_failed_model_is_neither_right_nor_wrong() -> None:
    made = table([1, 1], {"small": columns([-1, 1], failure=[CRASHED, 0])})
    found = replay(Use("small"), made)
    assert found.judged.tolist() == [False, True]
    assert found.counts() == {"judged": 1, "no_answer": 1}
    ladder = FallbackSettings(retry=0, preset=Preset(label="sorry"))
    saved = replay(Use("small"), made, fallback=ladder)
    assert saved.extra_labels == ("sorry",)
    assert saved.level.tolist() == [5, 0]
    assert saved.correct.tolist() == [False, True]


def test_peers_and_lighter_models_stand_in() -> None:
    info = {"large": ModelInfo(cost=8, peers=("twin",)), "twin": ModelInfo(cost=8), "small": ModelInfo(cost=1)}
    models = {
        "small": columns([0, 0], [0.5, 0.5], cost=1),
        "large": columns([-1, -1], failure=[CRASHED, CRASHED], cost=8, latency=1),
        "twin": columns([1, -1], failure=[0, CRASHED], cost=8, latency=1),
    }
    made = table([1, 1], models, info=info)
    found = replay(Use("large"), made, fallback=FallbackSettings())
    assert found.level.tolist() == [2, 3]
    assert found.label.tolist() == [1, 0]
    assert found.cost.tolist() == [16.0, 17.0]


def test_a_row_whose_outcome_was_not_recorded_is_left_out_only_when_it_is_needed() -> None:
    made = table(
        [1] * 4, {"small": columns([1] * 4, [0.9, 0.1, 0.9, 0.1]), "large": columns([1] * 4, failure=[-1, -1, 0, 0])}
    )
    found = replay(Cascade(stages=("small", "large"), threshold=0.5), made)
    assert found.answered.tolist() == [True, False, True, True]
    assert found.left_out == {"no outcome of large recorded": 1}
    assert found.counts() == {"judged": 3, "no outcome of large recorded": 1}


def test_rows_without_a_right_label_are_answered_but_not_judged() -> None:
    made = table([-1, 0], {"small": columns([0, 0])})
    assert replay(Use("small"), made).counts() == {"judged": 1, "no right label given": 1}


def test_the_deadline_ends_a_row() -> None:
    made = table([1, 1], {"small": columns([1, 1], [0.1, 0.1], latency=0.5), "large": columns([1, 1], latency=[1, 9])})
    found = replay(Cascade(stages=("small", "large"), threshold=0.5), made, deadline_s=2.0)
    assert found.answered.tolist() == [True, False]
    assert found.error.tolist() == ["", "deadline_exceeded"]
    rescued = replay(Cascade(stages=("small", "large"), threshold=0.5), made, deadline_s=2.0, fallback=FallbackSettings())
    assert rescued.level.tolist() == [0, 3]
    assert rescued.latency_s.tolist() == [1.5, 2.0]


def test_signals_come_from_the_kept_inputs() -> None:
    class Length:
        names = ("length",)

        def score(self, request: Request) -> Mapping[str, float]:
            return {"length": float(len(request.text))}

    made = table([0, 0], {"small": columns([0, 0]), "large": columns([1, 1])}, inputs=['"hi"', '"a long text"'])
    policy = Binary(signal="length", threshold=5, weak=Use("small"), strong=Use("large"))
    assert replay(policy, made, scorers=[Length()]).called.tolist() == [[True, False], [False, True]]
    lost = replay(policy, made, default="large")
    assert lost.by.tolist() == ["default", "default"]
    assert lost.called.tolist() == [[False, True]] * 2


def test_rules_need_the_inputs_they_read() -> None:
    policy = parse_policy({"rules": [{"name": "long", "when": "text.size() > 3", "use": "large"}]})
    models = {"small": columns([0, 0]), "large": columns([1, 1])}
    with pytest.raises(ValueError, match="evaluate with inputs kept"):
        replay(policy, table([0, 0], models))
    found = replay(policy, table([0, 0], models, inputs=['"hi"', '"a long text"']), default="small")
    assert found.called.tolist() == [[True, False], [False, True]]


def test_hysteresis_remembers_between_rows_of_one_session() -> None:
    n = 4
    made = table([0] * n, {"small": columns([0] * n, [0.95, 0.85, 0.75, 0.85]), "large": columns([0] * n)})
    meta = np.array(['{"session":"s"}'] * n, dtype=object)
    from dataclasses import replace

    policy = Cascade(stages=("small", "large"), threshold=0.9, hysteresis=(0.8, 0.9))
    assert replay(policy, replace(made, meta=meta)).called[:, 1].tolist() == [False, False, True, True]
    assert replay(policy, made).called[:, 1].tolist() == [False, True, True, True]


def test_a_users_own_policy_is_replayed_as_it_is() -> None:
    import msgspec

    class Alternate(msgspec.Struct, frozen=True):
        def decide(self, ctx: Context, history: tuple[Outcome, ...]) -> Answer | Call:
            model = "large" if int(ctx.request.id[1:]) % 2 else "small"
            return Answer({model: 1.0}, "odd or even") if history else Call((model,), "odd or even")

    found = replay(Alternate(), synthetic(100))
    assert found.share("large") == 0.5
    assert set(found.reason) == {"odd or even"}


def test_order_of_arrival_is_by_latency() -> None:
    made = table([0], {"a": columns([0], latency=3), "b": columns([1], latency=1)})
    found = replay(Blend(weights={"a": 1, "b": 1}), made)
    assert found.latency_s[0] == 3
    assert found.label[0] == 1  # equal weights: the label met first, and b arrived first


def test_progress_and_quantiles() -> None:
    seen: list[tuple[int, int]] = []
    found = replay(
        Delegate(weak="small", strong="large", low=0.2, high=0.4), synthetic(2500), progress=lambda *at: seen.append(at)
    )
    assert seen == [(1000, 2500), (2000, 2500), (2500, 2500)]
    p50, p95, p99 = found.latency_quantiles()
    assert 0 < p50 <= p95 <= p99 <= found.latency_s.max()
    assert all(math.isnan(q) for q in replay(Use("small"), synthetic(0)).latency_quantiles())
    assert math.isnan(replay(Use("small"), synthetic(0)).share("small"))


def test_weights_sum_to_one_where_something_answered() -> None:
    found = replay(Delegate(weak="small", strong="large", low=0.1, high=0.4), synthetic(200))
    np.testing.assert_allclose(found.weights.sum(axis=1), 1.0, rtol=1e-6)
    with pytest.raises(ValueError, match="the table has small, large"):
        replay(Use("other"), synthetic(1))
