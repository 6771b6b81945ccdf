"""Signals made from answers: who is called for them, when they are made, and what the record says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from rheostat.errors import ModelError
from rheostat.policies import parse_policy
from rheostat.testing import Act, scripted_model
from rheostat.types import Call, Context, Outcome, Prediction, Request
from tests.engine.test_engine import BROKEN, SURE, UNSURE, Bench, pair


class Told:
    """Says what it is told to, once the models of `needs` have answered; counts how often it was asked."""

    def __init__(self, needs: tuple[str, ...], **values: float) -> None:
        self.needs = needs
        self.names = tuple(f"w.{name}" for name in values)
        self.values = dict(zip(self.names, values.values(), strict=True))
        self.asked: list[Mapping[str, Outcome]] = []

    def score(self, _: Request, __: Mapping[str, float], outcomes: Mapping[str, Outcome]) -> dict[str, float]:
        self.asked.append(outcomes)
        if any(value != value for value in self.values.values()):  # noqa: PLR0124  NaN
            raise ValueError("no idea")
        return self.values


DELEGATE = {"delegate": {"weak": "fast", "strong": "large", "weight": "w.large", "low": 0.2, "high": 0.8}}


@pytest.mark.parametrize(
    ("needs", "weight", "called"),
    [(("fast",), 0.1, ["fast"]), (("fast",), 0.5, ["fast", "large"]), (("fast", "large"), 0.1, ["fast", "large"])],
)
def test_delegate_calls_what_its_weight_is_made_from(needs: tuple[str, ...], weight: float, called: list[str]) -> None:
    scorer = Told(needs, large=weight)
    bench = Bench(DELEGATE, pair([UNSURE], [SURE]), scorers=(scorer,))
    (served,) = bench.run()
    record = served.record
    assert [name for name in ("fast", "large") if bench.backend(name).calls] == called
    assert record.signals == {"w.large": weight}
    assert len(scorer.asked) == 1
    assert record.weights == pytest.approx({"fast": 1.0} if weight < 0.2 else {"fast": 0.5, "large": 0.5})
    assert record.status == "ok"


def test_blend_takes_its_weights_from_the_answers() -> None:
    node = {"blend": {"weights": {"fast": 1, "large": 1}, "signal": "w"}}
    bench = Bench(node, pair([UNSURE], [SURE]), scorers=(Told(("fast", "large"), fast=0.25, large=0.75),))
    (served,) = bench.run()
    assert served.record.weights == pytest.approx({"fast": 0.25, "large": 0.75})
    assert served.record.reason == "weights fast 0.2500, large 0.7500"
    assert served.record.elapsed_s == pytest.approx(0.1)  # both at once


def test_a_cascade_defers_by_a_learned_confidence() -> None:
    node = {"cascade": {"stages": ["fast", "large"], "threshold": 0.5, "confidence": "w"}}
    for confidence, calls in ((0.6, 0), (0.4, 1)):
        bench = Bench(node, pair([UNSURE], [SURE]), scorers=(Told(("fast",), fast=confidence),))
        bench.run()
        assert bench.backend("large").calls == calls, confidence


def test_a_failed_answer_counts_as_in() -> None:
    scorer = Told(("fast", "large"), large=0.5)
    bench = Bench(DELEGATE, pair([UNSURE], [BROKEN]), scorers=(scorer,), retry=0)
    (served,) = bench.run()
    assert scorer.asked[0]["large"].failure is not None
    assert served.record.weights == {"fast": 1.0}


def test_a_peer_is_waited_for() -> None:
    models = pair([UNSURE], [BROKEN], peers=("peer",)) | {"peer": scripted_model("peer", SURE, cost=40.0)}
    scorer = Told(("fast", "large"), large=0.5)
    bench = Bench(DELEGATE, models, scorers=(scorer,), retry=0)
    (served,) = bench.run()
    assert scorer.asked[0]["large"].served_by == "peer"
    assert served.record.weights == pytest.approx({"fast": 0.5, "large": 0.5})


def test_a_signal_that_cannot_be_made_leaves_the_request_to_the_default_model() -> None:
    scorer = Told(("fast",), large=float("nan"))
    bench = Bench(DELEGATE, pair([UNSURE], [SURE]), scorers=(scorer,))
    (served,) = bench.run()
    record = served.record
    assert (record.selected_model, record.status) == ("fast", "degraded")
    assert "router_unavailable: KeyError: 'w.large' (w.large: ValueError: no idea)" in record.fallback_reason


def test_a_forced_model_needs_no_signal() -> None:
    scorer = Told(("large",), large=0.5)
    bench = Bench(DELEGATE, pair([UNSURE], [SURE]), scorers=(scorer,))
    (served,) = bench.run({"force_model": "large"})
    assert served.record.selected_model == "large"
    assert not scorer.asked


def test_a_rule_sees_the_signal_when_it_comes() -> None:
    rule = {"rules": [{"when": "signals['w.large'] > 0.9", "use": "large"}]}
    node = {"chain": [rule, {"cascade": {"stages": ["fast", "large"], "threshold": 0.2, "confidence": "w"}}]}
    bench = Bench(node, pair([UNSURE], [SURE]), scorers=(Told(("fast",), fast=0.3, large=0.95),))
    (served,) = bench.run()
    assert (served.record.selected_model, served.record.route_type) == ("large", "cascade")


def decide(node: object, signals: dict[str, float], awaited: dict[str, tuple[str, ...]]) -> Any:
    return parse_policy(node).decide(Context(Request(id="r", data="x"), signals, awaited=awaited), ())


def test_a_request_signal_saves_calls_even_in_a_blend() -> None:
    node = {"blend": {"weights": {"a": 1, "b": 1, "c": 0}, "signal": "w"}}
    assert decide(node, {"w.a": 0.0, "w.b": 2.0, "w.c": 9.0}, {}).models == ("b",)
    with pytest.raises(ValueError, match="sum to 0"):
        decide(node, {"w.a": 0.0, "w.b": -1.0, "w.c": 1.0}, {})
    with pytest.raises(KeyError, match=r"w\.b"):
        decide(node, {"w.a": 0.0, "w.c": 1.0}, {})


def test_parallel_starts_both_for_a_weight_made_from_one() -> None:
    fields = {"weak": "a", "strong": "b", "weight": "w", "parallel": True}
    assert decide({"delegate": fields}, {}, {"w": ("a",)}) == Call(("a", "b"), "the answers give the weight (w)", "delegate")


def test_an_expired_request_makes_no_signal() -> None:
    scorer = Told(("fast", "large"), large=0.5)
    slow = [Act(Prediction("a", 0.9), 5.0), Act(ModelError("upstream_error", "boom"), 0.1)]
    bench = Bench(DELEGATE, pair([UNSURE], slow), scorers=(scorer,), retry=0)
    (served,) = bench.run({"deadline_s": 1.0})
    assert (served.record.level, served.record.selected_model) == (3, "fast")
    assert not scorer.asked
