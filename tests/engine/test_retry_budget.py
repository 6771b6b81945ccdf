"""Retries are bounded over all requests, and nobody waits for a try that cannot be in time."""

from __future__ import annotations

from rheostat.errors import ModelError
from rheostat.resilience.retry import RetryBudgetSettings
from rheostat.testing import Act, scripted_model
from tests.engine.test_engine import Bench

BROKEN = Act(ModelError("upstream_error", "boom"))


def test_a_dying_model_is_not_hit_by_a_storm() -> None:
    budget = RetryBudgetSettings(share=0.2, least=0.0)
    models = {"a": scripted_model("a", BROKEN, retry_budget=budget)}
    models["a"].breaker_settings = type(models["a"].breaker_settings)(failure_threshold=0, error_rate=1.0)
    bench = Bench("a", models, retry=2)
    served = bench.run(*({} for _ in range(100)))
    calls = models["a"].backend.calls  # type: ignore[union-attr]
    assert 110 <= calls <= 120
    assert models["a"].retries_refused >= 80
    told = [one.record.outcomes[0].failure.message for one in served if one.record.outcomes[0].failure]
    assert sum(message == "boom; not tried again: the model's retry budget is used up" for message in told) >= 80


def test_no_pause_is_made_that_ends_after_the_deadline() -> None:
    models = {"a": scripted_model("a", BROKEN)}
    bench = Bench("a", models, retry=2)
    (served,) = bench.run({"deadline_s": 0.01})
    assert served.error is not None
    assert models["a"].backend.calls == 1  # type: ignore[union-attr]
    assert served.record.elapsed_s < 0.01


def test_the_cap_of_the_breaker_holds_where_no_other_is_set() -> None:
    models = {"a": scripted_model("a")}
    assert models["a"].limit == 1000
