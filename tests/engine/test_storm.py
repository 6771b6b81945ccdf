"""Whatever the weather: every request ends once, in time, with a true record, and everything is given back."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rheostat.pool import Model
from rheostat.testing import scripted_model
from rheostat.testing.storm import Storm
from tests.engine.test_engine import BROKEN, SURE, Bench


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 100))
def test_no_law_is_broken(seed: int, requests: int) -> None:
    result = Storm(seed).run(requests)
    assert result.violations == ()
    assert sum(result.endings.values()) == requests


def test_a_seed_decides_everything() -> None:
    one, two = Storm(42), Storm(42)
    assert one.run() == two.run()
    assert one.router.records == two.router.records
    assert Storm(43).run() != Storm(42).run()


def test_everything_that_may_happen_happens() -> None:
    happened: Counter[str] = Counter()
    for seed in range(20):
        happened.update(Storm(seed).run().happened)
    rare = ("reloads", "cached answers", "streams with several pieces", "promises kept", "promises given up", "health turns",
            "retries refused", "completions tried")  # fmt: skip
    assert [name for name in rare if not happened[name]] == []


def test_a_broken_law_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Model, "may_retry", lambda *_: True)
    told = [law for seed in range(10) for law in Storm(seed).run().violations]
    assert any("its budget is" in law for law in told)


def test_every_peer_that_was_asked_is_told() -> None:
    models = {
        "a": scripted_model("a", BROKEN, peers=("b", "c"), cost=1.0),
        "b": scripted_model("b", BROKEN, cost=2.0, peers=("c",)),
        "c": scripted_model("c", SURE, cost=4.0),
    }
    (served,) = Bench("a", models, retry=0).run()
    (outcome,) = served.record.outcomes
    assert [attempt.model for attempt in outcome.attempts] == ["a", "b", "c"]
    assert (outcome.level, outcome.cost, served.record.selected_model) == (2, 7.0, "c")


def test_a_model_that_runs_for_itself_stands_in_for_nobody() -> None:
    models = {"a": scripted_model("a", SURE, max_input=1, peers=("b",)), "b": scripted_model("b", SURE)}
    policy = {"blend": {"weights": {"a": 1.0, "b": 1.0}}}
    (served,) = Bench(policy, models).run({"data": "more than one token"})
    assert models["b"].backend.calls == 1  # type: ignore[union-attr]
    assert served.record.missing == ("a",)


def test_a_policy_that_asks_for_a_peer_already_asked_goes_on() -> None:
    models = {
        "a": scripted_model("a", BROKEN, peers=("b",)),
        "b": scripted_model("b", BROKEN),
        "c": scripted_model("c", SURE),
    }
    policy = {"cascade": {"stages": ["a", "b", "c"], "threshold": 0.5}}
    (served,) = Bench(policy, models, retry=0).run()
    assert served.record.selected_model == "c"
    assert models["b"].backend.calls == 1  # type: ignore[union-attr]
