"""A record told in words says what happened, and nothing else."""

from __future__ import annotations

import pytest

from rheostat.telemetry.telling import tell
from rheostat.types import Attempt, Failure, Feedback, InputSummary, Outcome, Step

DOWN = Failure("unavailable", "refused")


def failed(model, *tried):
    attempts = tuple(Attempt(name, 0.0, 0.01, DOWN) for name in tried)
    return Outcome(model, None, DOWN, attempts, tried[-1])


@pytest.mark.parametrize(
    ("more", "status", "ladder"),
    [
        ({}, "answered", "not needed"),
        (
            {"level": 1, "fallback_reason": "L1: fast timeout"},
            "answered by the same model, tried again",
            "L1: the same model again",
        ),
        (
            {"level": 2, "fallback_reason": "L2: fast timeout"},
            "answered by a peer that stood in",
            "L2: a peer of equal quality",
        ),
        (
            {"status": "degraded", "level": 3, "fallback_reason": "large failed"},
            "answered, but by a rung of the fallback ladder",
            "L3: a lighter model or the answer at hand",
        ),
        (
            {"status": "degraded", "level": 5, "fallback_reason": "large failed"},
            "answered, but by a rung of the fallback ladder",
            "L5: the preset",
        ),
        ({"status": "rejected"}, "refused: the request itself was wrong", "not used"),
        (
            {"status": "rejected", "error_type": "too_many_requests"},
            "turned away: its tenant had as many requests in flight as it may",
            "not used",
        ),
        ({"status": "error", "error_type": "overloaded", "steps": ()}, "turned away: the gateway was full", "not used"),
    ],
)
def test_status_and_ladder(make_record, more, status, ladder) -> None:
    lines = tell(make_record(**more))
    assert lines[1].startswith(f"  {status}, on the route 'default'")
    assert f"  fallback ladder: {ladder}" in lines
    assert [line for line in lines if "because: " in line] == [
        f"  because: {more[key]}" for key in more if key == "fallback_reason"
    ]


def test_the_routers_own_failure_is_no_rung(make_record) -> None:
    why = "router_unavailable: the policy raised KeyError('gone')"
    lines = tell(make_record(status="degraded", fallback_reason=why))
    assert lines[1].startswith("  answered by the default model, as the router itself failed, on")
    assert (
        "  the router could not decide, so the route's default model was asked: the policy raised KeyError('gone')" in lines
    )
    assert "  fallback ladder: not needed" in lines


def test_the_routers_own_failure_is_told_also_when_a_rung_was_needed_after_it(make_record) -> None:
    steps = (Step(0.0, "decline", ("fast",), "router_unavailable: no"), Step(0.1, "fallback", (), "L5: fast failed"))
    lines = tell(make_record(status="degraded", level=5, fallback_reason="fast failed", steps=steps))
    assert "  the router could not decide, so the route's default model was asked: no" in lines
    assert lines.index("  fallback ladder: L5: the preset") + 1 == lines.index("  because: fast failed")


@pytest.mark.parametrize(
    ("outcomes", "steps", "told"),
    [
        ((failed("large", "large"),), (), "no rung was tried"),
        ((failed("large", "large", "large"),), (), "tried: L1: the same model again"),
        (
            (failed("large", "large", "twin"), failed("fast", "fast")),
            (Step(0.1, "fallback", ("fast",), "L3: large failed, asking fast"),),
            "tried: L2: a peer of equal quality, L3: a lighter model or the answer at hand",
        ),
    ],
)
def test_a_request_nobody_could_answer(make_record, outcomes, steps, told) -> None:
    nothing = {"status": "error", "label": None, "confidence": None, "weights": {}, "error": "no model could answer"}
    lines = tell(make_record(outcomes=outcomes, steps=steps, **nothing))
    assert lines[1].startswith("  not answered, on")
    assert f"  fallback ladder: nothing could answer; {told}" in lines


def test_feedback_is_told_in_the_order_it_came(make_record) -> None:
    late = Feedback(request_id="r0", wall=1.7e9 + 60, label="pos", source="desk")
    early = Feedback(request_id="r0", wall=1.7e9 + 1, label="neg")
    lines = tell(make_record(), [late, early])
    first = lines.index("feedback 1 of 2 on 2023-11-14 22:13:21 UTC")
    assert lines[first + 1] == "  the right label is 'neg': the answer was wrong"
    second = lines.index("feedback 2 of 2 on 2023-11-14 22:14:20 UTC (desk)")
    assert second > first
    assert lines[second + 1] == "  the right label is 'pos': the answer was right"
    assert "feedback on 2023-11-14 22:14:20 UTC (desk)" in tell(make_record(), [late])


@pytest.mark.parametrize(
    ("kind", "length", "told"),
    [("text", 1, "text of 1 character ("), ("text", 2, "text of 2 characters ("), ("json", 1, "json of 1 byte (")],
)
def test_lengths(make_record, kind, length, told) -> None:
    lines = tell(make_record(input=InputSummary(kind, length, "ab")))
    assert lines[2].startswith(f"  input: {told}")


def test_a_call_that_was_cut_off_and_who_was_urgent(make_record) -> None:
    cut = Failure("cancelled", "cut off: the request had ended")
    outcome = Outcome("large", None, cut, (Attempt("large", 0.0, 0.25, cut),), "large", "v2", elapsed_s=0.25, cost=40.0)
    lines = tell(make_record(outcomes=(outcome,), cancelled=("large",), priority="low"))
    assert "  large (version v2): cut off: the request had ended; 250 ms, cost 40" in lines
    assert "  priority: low" in lines
    assert not any("priority" in line for line in tell(make_record()))
