"""Who was asked for one request, who stands in for whom, and what came back. No policy, no rung: bookkeeping only."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from math import inf

from msgspec import structs

from rheostat.engine.allotment import Allotment
from rheostat.engine.passing import outgrown, ramping, unfit, unpaid
from rheostat.resilience.ladder import Link, peer_of
from rheostat.types import Context, Failure, Outcome

_NOBODY: frozenset[str] = frozenset()
_NO_PEERS: Mapping[str, str] = {}
_ANY_NUMBER = Allotment(0)  # counts nothing, so one does for all


class Asked:
    """The models of one request. `history` holds one outcome a model, in the order they came; `named` says that a person
    chose the model, so that its ramp spares it nothing. What most requests never need is made when it is."""

    __slots__ = (
        "allotment", "history", "in_flight", "links", "named", "refused", "spared", "standing", "started", "steering",
        "turned_away",
    )  # fmt: skip

    def __init__(self, links: Mapping[str, Link], steering: Collection[str], most: int, named: bool) -> None:
        self.links = links
        self.steering = steering
        self.named = named
        self.allotment = Allotment(most) if most else _ANY_NUMBER
        self.history: tuple[Outcome, ...] = ()
        self.in_flight: set[str] = set()
        self.started: set[str] = set()
        self.refused: frozenset[str] = _NOBODY  # passed over
        self.turned_away: tuple[tuple[str, Failure], ...] = ()  # who was named and not asked, and why
        self.spared: tuple[str, ...] = ()  # of these, those that could be asked after all when nobody else can answer
        self.standing: Mapping[str, str] = _NO_PEERS  # peer -> the model it stands in for

    def launch(self, models: tuple[str, ...]) -> tuple[str, ...]:
        """Take note that these are started now."""
        self.started.update(models)
        self.in_flight.update(models)
        self.allotment.started(models)
        return models

    def ended(self, outcome: Outcome) -> None:
        """Take note that a model no longer runs."""
        self.in_flight.discard(outcome.model)
        self.allotment.ended(outcome)
        if outcome.failure is not None and not outcome.attempts:
            self.turned_away += ((outcome.model, outcome.failure),)

    def is_plain(self, outcome: Outcome) -> bool:
        """Whether the outcome is the model's own answer, and nobody stands in for anybody."""
        return outcome.failure is None and not self.standing and outcome.model not in self.refused

    def placed(self, outcome: Outcome) -> Outcome:
        """Return the outcome under the name of the model that was asked for, with all attempts made for it."""
        asked = self.standing.get(outcome.model)
        if asked is not None:
            self.standing = {peer: model for peer, model in self.standing.items() if peer != outcome.model}
            return structs.replace(self._joined(asked, outcome), model=asked, level=2)
        return self._joined(outcome.model, outcome) if outcome.model in self.refused else outcome

    def remember(self, outcome: Outcome) -> None:
        """Keep the outcome, in the place of an earlier one of that model."""
        self.history = (*(o for o in self.history if o.model != outcome.model), outcome)

    def heard(self) -> tuple[Outcome, ...]:
        """Return what the policy may know: not the failures for which a peer is still being asked."""
        if not self.standing:
            return self.history
        waiting = set(self.standing.values())
        return tuple(o for o in self.history if o.model not in waiting)

    def hindrance(self, model: str, ctx: Context) -> Failure | None:
        """Say why the model is not to be asked, if so."""
        failure = self._barred(model, ctx)
        if failure is None and not self.named:
            failure = ramping(model, ctx, self.links, self.started | self.refused)
        return failure

    def before_its_turn(self, ctx: Context) -> str | None:
        """Return a model that only its ramp spared, or None; nobody else can answer."""
        while self.spared:
            model, *rest = self.spared
            self.spared = tuple(rest)
            if self._barred(model, ctx) is None:
                return model
        return None

    def pass_over(self, model: str, failure: Failure) -> None:
        """Take note that the model was named and is not asked."""
        self.refused |= {model}
        self.turned_away += ((model, failure),)
        if failure.kind == "ramping" and model not in self.steering:
            self.spared += (model,)
        self.remember(Outcome(model, failure=failure, served_by=model))

    def peer(self, model: str, asked: str, ctx: Context) -> str | None:
        """Return the next peer of `model`, which from now on stands in for `asked` (L2), or None."""
        while (peer := peer_of(model, self.links, self.started | self.refused)) is not None:
            hindrance = self.hindrance(peer, ctx)
            if hindrance is None:
                self.standing = {**self.standing, peer: asked}
                return peer
            self.pass_over(peer, hindrance)
        return None

    def lend(self, models: tuple[str, ...]) -> bool:
        """Give those of `models` that ran only for others an outcome of their own; False when there is none.

        An answer counts for both. Its attempts and its cost are told once, with the model that was asked for.
        """
        heard = {outcome.model for outcome in self.history}
        lent = [model for model in models if model in self.started and model not in heard]
        for model in lent:
            said = next((o for o in self.history if o.ok and o.served_by == model), None)
            if said is not None:
                self.remember(structs.replace(said, model=model, attempts=(), cost=0.0, elapsed_s=0.0, level=0))
            else:
                failure = Failure("unavailable", "it was asked already, as a peer")
                self.remember(Outcome(model, failure=failure, served_by=model))
        return bool(lent)

    def cut_off(self, outcomes: Iterable[Outcome]) -> None:
        """Keep what came of the models that still ran when the request ended; nobody decides by it any more."""
        for outcome in outcomes:
            self.remember(self.placed(outcome))

    def _barred(self, model: str, ctx: Context) -> Failure | None:
        if self.allotment.used_up:
            return Failure("over_budget", f"the {self.allotment.most} calls of a request are used up")
        limit = ctx.request.max_cost
        if limit != inf:
            spent = sum([outcome.cost for outcome in self.history]) + sum([self.links[name].cost for name in self.in_flight])
            failure = unpaid(model, self.links, limit, spent)
            if failure is not None:
                return failure
        link = self.links[model]
        return unfit(link, ctx) or (outgrown(link, self.links, self.history) if self.history else None)

    def _joined(self, asked: str, outcome: Outcome) -> Outcome:
        """Return the outcome with all attempts so far that were made for `asked`, by whomever."""
        earlier = [o for o in self.history if o.model == asked]
        attempts = tuple(a for o in earlier for a in o.attempts) + outcome.attempts
        cost = sum(o.cost for o in earlier) + outcome.cost
        elapsed = sum(o.elapsed_s for o in earlier) + outcome.elapsed_s
        return structs.replace(outcome, attempts=attempts, cost=cost, elapsed_s=elapsed)
