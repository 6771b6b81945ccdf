"""Finds a session that a route gives to a certain model first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rheostat.policies import parse_policy
from rheostat.testing.cases.form import CaseError
from rheostat.types import Call, Context, ModelView, Request

_TRIES = 10_000


def session_for(model: str, name: str, route: str, config: Mapping[str, Any]) -> str:
    """Return a session, `name` with a number behind it, whose first request on `route` goes to `model`.

    Raises:
        CaseError: there is none among the first ten thousand.
    """
    policy = parse_policy(config["routes"][route]["policy"])
    pool = {other: ModelView(other) for other in config["routes"][route]["models"]}
    for number in range(_TRIES):
        session = f"{name}-{number}"
        request = Request(id=session, data="hello", text="hello", route=route, session=session)
        decision = policy.decide(Context(request, {}, pool), ())
        if isinstance(decision, Call) and decision.models[:1] == (model,):
            return session
    raise CaseError(f"no session is given to {model} first")
