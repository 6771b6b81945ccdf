"""What every policy and every backend must obey, users' own included."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from rheostat.backends import check_contract, check_remote_contract
from rheostat.backends.check import ContractReport
from rheostat.policies import History, Policy, models_of
from rheostat.pool import Backend, ModelSettings, RemoteBackend, Row
from rheostat.types import Answer, Call, Context, Decline, Outcome


def check_policy(policy: Policy, ctx: Context, outcomes: Mapping[str, Outcome], *, limit: int = 50) -> list[str]:
    """Drive `policy` by hand over `outcomes` (one per model) and return the names of the models it called, in order.

    Raises:
        AssertionError: it is not pure (the same question got two answers), names a model twice in one call or one without
            an outcome, gives weight to a model that has not answered well, has a propensity outside (0, 1], or does not
            end within `limit` decisions.
    """
    history: History = ()
    called: list[str] = []
    declared = models_of(policy)
    for _ in range(limit):
        decision = policy.decide(ctx, history)
        again = policy.decide(ctx, history)
        assert decision == again, f"not pure: {decision} and then {again} for the same question"
        if isinstance(decision, Decline):
            return called
        assert 0.0 < decision.propensity <= 1.0, f"propensity {decision.propensity} is outside (0, 1]"
        if isinstance(decision, Answer):
            good = {outcome.model for outcome in history if outcome.ok}
            assert decision.weights, "an answer needs at least one weight"
            assert all(weight >= 0.0 for weight in decision.weights.values()), "a weight is negative"
            assert sum(decision.weights.values()) > 0.0, "the weights sum to 0"
            heavy = {model for model, weight in decision.weights.items() if weight > 0.0}
            good |= set(decision.stand_ins)
            assert heavy <= good, f"weight on models that have no good outcome: {sorted(heavy - good)}"
            return called
        assert isinstance(decision, Call), f"{decision!r} is not a decision"
        assert len(set(decision.models)) == len(decision.models), f"a model is named twice: {decision.models}"
        assert not declared or set(decision.models) <= set(declared), f"{decision.models} are not all in models()"
        fresh = [model for model in decision.models if model not in called]
        assert fresh or len(history) < len(called), "waits although everything it called has come back"
        called.extend(fresh)
        waiting = [model for model in called if all(outcome.model != model for outcome in history)]
        history += (outcomes[waiting[0]],)
    raise AssertionError(f"no end after {limit} decisions")


def check_backend(backend: Backend | RemoteBackend, rows: Sequence[Row], labels: tuple[str, ...] = ()) -> ContractReport:
    """Hold `backend` to the contract that every model is held to before it takes traffic, on `rows`.

    One reply a row, in order; a label, one of `labels` if there are any; a confidence in [0, 1] or none; scores that sum to
    1; and, for a model of this process, the same answer twice, alone and beside others. It must not run in an event loop.

    Raises:
        ContractError: with everything that was found.
    """
    settings = ModelSettings(labels=labels, probe=list(rows))
    if not isinstance(backend, Backend):
        return asyncio.run(check_remote_contract("backend", backend, settings))
    return check_contract("backend", backend, settings)
