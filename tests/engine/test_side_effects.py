"""A call whose result is unknown is not repeated; a model that cannot hold the input is passed over."""

from __future__ import annotations

import pytest

from rheostat.errors import ModelError
from rheostat.testing import Act, scripted_model
from rheostat.types import Prediction, tokens_of
from tests.engine.test_engine import Bench

OK = Act(Prediction("ok", 1.0))


@pytest.mark.parametrize("kind", ["reset", "timeout", "upstream_error", "bad_output", "crashed"])
def test_an_uncertain_call_is_not_repeated_by_anybody(kind: str) -> None:
    models = {
        "s": scripted_model("s", Act(ModelError(kind, "gone")), side_effects=True, peers=("p",), lighter="p"),
        "p": scripted_model("p", OK),
    }
    (served,) = Bench("s", models, retry=3).run()
    assert isinstance(served.error, ModelError)
    assert served.error.kind == "uncertain"
    assert (models["s"].backend.calls, models["p"].backend.calls) == (1, 0)  # type: ignore[union-attr]
    assert served.record.status == "error"
    assert models["s"].breaker.failures == 1


@pytest.mark.parametrize(
    "error", [ModelError("connection", "refused"), ModelError("upstream_error", "busy", upstream_status=503)]
)
def test_what_was_not_done_may_be_repeated(error: ModelError) -> None:
    models = {"s": scripted_model("s", Act(error), OK, side_effects=True)}
    (served,) = Bench("s", models, retry=1).run()
    assert served.prediction == Prediction("ok", 1.0)
    assert models["s"].backend.calls == 2  # type: ignore[union-attr]


def test_a_model_too_small_is_passed_over_and_unharmed() -> None:
    limited = Act(ModelError("rate_limited", "slow down", upstream_status=429))
    models = {
        "a": scripted_model("a", limited, peers=("b", "c"), max_input=128_000),
        "b": scripted_model("b", OK, max_input=4),
        "c": scripted_model("c", OK, max_input=128_000),
    }
    (served,) = Bench("a", models, retry=0).run({"data": "far more than four tokens of plain text"})
    assert served.record.selected_model == "c"
    assert models["b"].backend.calls == 0  # type: ignore[union-attr]
    (passed,) = [outcome for outcome in served.record.outcomes if outcome.model == "b"]
    assert passed.attempts == ()
    assert passed.failure is not None
    assert passed.failure.kind == "input_too_large"
    assert models["b"].breaker.failures == 0


def test_tokens_are_estimated() -> None:
    assert tokens_of("") == 0
    assert tokens_of("abcd" * 10) == 10
    assert tokens_of("模型") == 2
    assert tokens_of({"text": "模"}) == 4
    assert tokens_of("\ud800") == 1
