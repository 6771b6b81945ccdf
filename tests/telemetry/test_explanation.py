"""The stations of a request's path stand in its record, in order, each led to by those before it."""

from __future__ import annotations

import msgspec
import pytest

from rheostat.telemetry.explanation import explain
from rheostat.types import Attempt, Failure, Feedback, Outcome, Prediction, Step

CUT = Failure("cancelled", "cut off: the request had ended")
LATE = Failure("timeout", "no answer after 0.2 s")


def said(model, label, started_s, elapsed_s, *before, version="1"):
    tries = (*before, Attempt(model, started_s, elapsed_s))
    return Outcome(model, Prediction(label, 0.8), None, tries, model, version, 0, elapsed_s, 2.0)


def test_a_cascade_that_waited_and_tried_again(make_record) -> None:
    steps = (
        Step(0.001, "call", ("fast",), "cheapest first"),
        Step(0.011, "call", ("large",), "0.60 < 0.90"),
        Step(0.9, "answer", ("large",), "the last stage", weights={"large": 1.0}),
    )
    outcomes = (
        said("fast", "neg", 0.001, 0.01),
        said("large", "pos", 0.6, 0.3, Attempt("large", 0.3, 0.2, LATE), version="7"),
    )
    record = make_record(
        steps=steps, outcomes=outcomes, selected_model="large", elapsed_s=0.9001, signals={"difficulty": 0.7}, cache="miss"
    )
    found = explain(record, [Feedback(request_id="r0", wall=record.wall + 5.0, label="pos")])
    by = {each.id: each for each in found.stations}
    assert [each.id for each in found.stations] == [
        "arrived", "cache", "signals", "step-1", "call-1-1", "step-2", "wait-2", "call-2-1", "call-2-2", "step-3", "ended",
        "judged-1",
    ]  # fmt: skip
    assert {name: each.after for name, each in by.items()} == {
        "arrived": (), "cache": ("arrived",), "signals": ("cache",), "step-1": ("signals",), "call-1-1": ("step-1",),
        "step-2": ("call-1-1",), "wait-2": ("step-2",), "call-2-1": ("wait-2",), "call-2-2": ("call-2-1",),
        "step-3": ("call-2-2",), "ended": ("step-3",), "judged-1": ("ended",),
    }  # fmt: skip
    assert (by["wait-2"].at_s, by["wait-2"].end_s) == (0.011, 0.3)
    assert (by["call-2-1"].state, by["call-2-1"].facts["failure"]) == ("failed", "timeout")
    assert by["call-2-2"].facts == {"version": "7", "cost": 2.0, "label": "pos", "confidence": 0.8}
    assert by["step-3"].facts["weights"] == {"large": 1.0}
    assert (by["judged-1"].state, by["judged-1"].at_s) == ("good", pytest.approx(5.9001))
    assert found.text[0].startswith("request r0 on 2023-11-14")
    assert msgspec.json.decode(msgspec.json.encode(found))["stations"][0]["kind"] == "arrived"


def test_a_blend_leads_to_its_answer_by_all_of_its_calls_and_one_is_cut_off(make_record) -> None:
    steps = (Step(0.0, "call", ("a", "b", "c"), "all"), Step(0.05, "answer", ("a", "b"), "two agree"))
    cut = Outcome("c", None, CUT, (Attempt("c", 0.0, 0.05, CUT),), "c", "", 0, 0.05, 1.0)
    record = make_record(steps=steps, outcomes=(said("a", "x", 0.0, 0.02), said("b", "x", 0.0, 0.05), cut), elapsed_s=0.05)
    by = {each.id: each for each in explain(record).stations}
    assert by["step-2"].after == ("call-1-1", "call-2-1")
    assert by["call-3-1"].state == "cut"
    assert by["ended"].after == ("step-2", "call-3-1")


def test_a_model_that_was_not_asked_and_a_fallback(make_record) -> None:
    down = Failure("unavailable", "its breaker is open", None, 20.0)
    steps = (
        Step(0.0, "call", ("large",), "hard"),
        Step(0.0, "fallback", ("fast",), "L3: large failed, asking fast"),
        Step(0.01, "answer", ("fast",), "L3"),
    )
    outcomes = (Outcome("large", None, down, ()), said("fast", "pos", 0.0, 0.01))
    found = explain(make_record(steps=steps, outcomes=outcomes, status="degraded", level=3))
    by = {each.id: each for each in found.stations}
    assert by["call-1"].title == "large was not asked: unavailable"
    assert by["call-1"].state == "failed"
    assert by["step-2"].kind == "fallback"
    assert by["step-2"].after == ("call-1",)
    assert by["call-2-1"].after == ("step-2",)
    assert by["ended"].state == "good"


def test_a_request_that_was_answered_from_the_cache_or_refused(make_record) -> None:
    nothing = {"outcomes": (), "steps": (), "weights": {}}
    hit = explain(make_record(cache="hit", age_s=3.0, elapsed_s=0.0002, **nothing))
    assert [(each.id, each.state) for each in hit.stations] == [("arrived", "plain"), ("cache", "good"), ("ended", "good")]
    refused = explain(make_record(status="rejected", label=None, error="no", error_type="invalid_request", **nothing))
    assert refused.stations[-1].title == "rejected"
    assert refused.stations[-1].state == "failed"
    assert refused.stations[-1].facts["error"] == "no"
