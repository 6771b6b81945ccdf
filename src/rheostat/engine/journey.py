"""One request's way through its policy and the ladder, without I/O.

The live engine and the replay loop both drive this object, so there is one implementation of what a decision means.
The driver starts the models it is told to start, reports each outcome once, and stops what is still running when
`ending` is set.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from math import inf
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from rheostat.combine import combine
from rheostat.engine.asked import Asked
from rheostat.engine.checked import check_weights, check_words, substituted
from rheostat.engine.ending import Ending, held_to, no_answer, why
from rheostat.errors import DeadlineExceeded, ModelError, NoAnswer
from rheostat.policies import Policy, Use
from rheostat.resilience.ladder import FallbackSettings, Link, next_rung
from rheostat.types import Answer, Call, Context, Decline, Failure, Floor, Outcome, Prediction, Recalled, Request, Step

if TYPE_CHECKING:
    from rheostat.signals.base import AnswerScorer

NO_WEIGHTS: Mapping[str, float] = {}
SIGNAL_ERROR = "signal_error"
"""Where a context's memo says why a signal is missing."""
NO_FALLBACK = FallbackSettings(retry=0, peer=False, lighter=False)
Recall = Callable[[Request], Recalled | None]
"""Finds the last good answer to the same question."""


class Route(Struct, frozen=True, kw_only=True):
    """What a journey needs to know of its route.

    `links` holds the models this route may use, `answer_scorers` make signals from their answers. What the models in
    `steering` say only chooses others.
    """

    policy: Policy
    fallback: FallbackSettings
    links: Mapping[str, Link]
    default: str
    answer_scorers: tuple[AnswerScorer, ...] = ()
    steering: Collection[str] = ()


class Journey:
    """Drive it with `start`, then `arrived` for every outcome, until `ending` is not None. `recall` is asked on L4.

    Both return the models to start now; an empty tuple means: wait for the next outcome. `at_s` is seconds since the
    request's arrival, for the record only.
    """

    __slots__ = (
        "asked", "at_s", "awaiting", "by", "ctx", "ending", "fallback", "falling", "floor", "policy", "recall", "route",
        "steps", "trouble",
    )  # fmt: skip

    def __init__(self, route: Route, ctx: Context, recall: Recall | None = None) -> None:
        self.route = route
        self.ctx = ctx
        self.policy = route.policy
        self.fallback = route.fallback
        self.recall = recall
        request = ctx.request
        if request.force_model is not None:
            self.policy, self.fallback = Use(request.force_model), NO_FALLBACK
        elif request.skip_route:
            self.policy, self.fallback = Use(route.default), NO_FALLBACK
        named = self.policy is not route.policy
        self.asked = Asked(route.links, route.steering, route.fallback.max_attempts, named)
        self.awaiting: tuple[AnswerScorer, ...] = ()
        if route.answer_scorers and not named:
            self._await(route.answer_scorers)
        self.steps: list[Step] = []
        self.at_s = 0.0
        self.by = ""
        self.falling: str | None = None  # why the ladder took over
        self.trouble: str | None = None  # the router's own failure
        self.floor: Floor | None = None  # under which the answer, whoever gives it, is for a person to review
        self.ending: Ending | None = None

    @property
    def history(self) -> tuple[Outcome, ...]:
        """What has come back, one outcome a model."""
        return self.asked.history

    @property
    def in_flight(self) -> set[str]:
        """The models that run now."""
        return self.asked.in_flight

    @property
    def started(self) -> set[str]:
        """The models that were asked, for themselves or standing in."""
        return self.asked.started

    def start(self, at_s: float) -> tuple[str, ...]:
        """Ask the policy for the first time."""
        self.at_s = at_s
        return self._ask()

    def arrived(self, outcome: Outcome, at_s: float) -> tuple[str, ...]:
        """Take in what a started model came back with."""
        self.at_s = at_s
        asked = self.asked
        asked.ended(outcome)
        failure = outcome.failure
        if asked.is_plain(outcome):
            asked.history += (outcome,)
            return self._ask()
        model, outcome = outcome.model, asked.placed(outcome)
        asked.remember(outcome)  # first: what it cost is spent
        if failure is not None and not failure.final and failure.kind != "cancelled":
            peer = self._peer(model, outcome.model, failure)
            if peer is not None:
                return asked.launch((peer,))
        if failure is not None and failure.final and not any(o.ok for o in asked.history):
            error = ModelError(failure.kind, failure.message, upstream_status=failure.upstream_status)
            self._end(Ending(error=error, by=self.by, reason=f"{model}: {failure.kind}"))
            return ()
        return self._ask()

    def tries(self, model: str) -> int:
        """Return how often a model that is to start may be asked, 1 or more.

        Once where it was named by hand or only chooses others, and where every try has to be paid for.
        """
        request = self.ctx.request
        if request.max_cost != inf or request.force_model is not None or model in self.route.steering:
            return 1
        return self.asked.allotment.tries(model, 1 + self.route.fallback.retry)

    def expire(self, at_s: float) -> None:
        """The deadline is over: end with what is in hand, the preset, or an error; nothing more is started."""
        self.at_s = at_s
        self.falling = "deadline passed"
        self._climb(may_call=False)

    def _peer(self, model: str, asked: str, failure: Failure) -> str | None:
        """Return the next peer of `model` that may be asked in the place of `asked` (L2), if any."""
        peer = self.asked.peer(model, asked, self.ctx) if self.fallback.peer else None
        if peer is not None:
            self._note("fallback", (peer,), f"L2: {model} {failure.kind}, asking its peer {peer}")
        return peer

    def _ask(self) -> tuple[str, ...]:
        if self.falling is not None:
            return self._climb()
        asked = self.asked
        heard = asked.heard() if asked.standing else asked.history
        if self.awaiting and heard:
            self._score(heard)
        try:
            decision = self.policy.decide(self.ctx, heard)
            self.floor = getattr(decision, "floor", None) or self.floor
            if self.trouble is None and (trouble := getattr(decision, "trouble", "")):
                self.trouble = f"router_unavailable: {trouble}"
            if isinstance(decision, Call):
                check_words(decision)
                return self._called(decision)
            if isinstance(decision, Answer):
                check_words(decision)
                check_weights(decision.weights)
                stand_ins = decision.stand_ins
                outcomes = substituted(asked.history, stand_ins) if stand_ins else asked.history
                prediction = combine(decision.weights, outcomes)
                if prediction is None:
                    decision = Decline("none of the weighted models answered", failed=True)
                else:
                    self._answered(decision, prediction)
                    return ()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # the router's own failure must not be the request's
            return self._router_failed(f"{type(error).__name__}: {error}")
        if not isinstance(decision, Decline):
            return self._router_failed(f"{type(decision).__name__} is not a decision")
        if not decision.failed:
            return self._default(decision.reason)
        self.falling = decision.reason
        if decision.alone:
            self.fallback = structs.replace(self.fallback, lighter=False)
        self._note("decline", (), decision.reason)
        return self._climb()

    def _await(self, scorers: tuple[AnswerScorer, ...], made: Mapping[str, float] = NO_WEIGHTS, error: str = "") -> None:
        """Add what was made to the signals, and tell the policy what is still to come.

        What a policy remembered of the old signals does not hold for the new ones, so the memo starts afresh.
        """
        self.awaiting = scorers
        memo: dict[str, Any] = {key: value for key, value in self.ctx.memo.items() if key == SIGNAL_ERROR}
        if error:
            memo[SIGNAL_ERROR] = error
        self.ctx = structs.replace(
            self.ctx,
            signals={**self.ctx.signals, **made} if made else self.ctx.signals,
            memo=memo,
            awaited={name: scorer.needs for scorer in scorers for name in scorer.names},
        )

    def _score(self, heard: tuple[Outcome, ...]) -> None:
        """Make the signals whose answers are all in. One that cannot be made is no longer awaited and stays absent."""
        came = {outcome.model: outcome for outcome in heard}
        ready = [scorer for scorer in self.awaiting if all(model in came for model in scorer.needs)]
        for scorer in ready:
            made: Mapping[str, float] = NO_WEIGHTS
            error = ""
            try:
                made = scorer.score(self.ctx.request, self.ctx.signals, {model: came[model] for model in scorer.needs})
            except KeyboardInterrupt:
                raise
            except BaseException as failure:  # the policy that needs it will miss it, and say so
                error = f"{scorer.names[0]}: {type(failure).__name__}: {failure}"
            self._await(tuple(other for other in self.awaiting if other is not scorer), made, error)

    def _called(self, call: Call) -> tuple[str, ...]:
        asked = self.asked
        fresh = tuple([model for model in call.models if model not in asked.started and model not in asked.refused])
        for model in fresh:
            if model not in asked.links:
                return self._router_failed(f"the policy names the unknown model {model}")
        self.by = self.by or call.by
        if fresh:
            self._note("call", call.models, call.reason, call.propensity)
            return self._begin(fresh)
        if asked.in_flight:
            return ()
        if not asked.lend(call.models):
            return self._router_failed("the policy waits for models that have all come back")
        return self._ask()

    def _begin(self, fresh: tuple[str, ...]) -> tuple[str, ...]:
        """Start what may be asked, in the order named, or its peer; the rest counts as failed, and is not asked."""
        launched: tuple[str, ...] = ()
        passed: list[tuple[str, Failure]] = []
        for model in fresh:
            failure = self.asked.hindrance(model, self.ctx)
            if failure is None:
                launched += self.asked.launch((model,))
            else:
                self.asked.pass_over(model, failure)
                passed.append((model, failure))
        for model, failure in passed:  # now that it is known who runs for itself
            peer = self._peer(model, model, failure) if failure.kind != "over_budget" else None
            if peer is not None:
                launched += self.asked.launch((peer,))
        return launched or (() if self.in_flight else self._ask())

    def _answered(self, answer: Answer, prediction: Prediction) -> None:
        self._note("answer", tuple(answer.weights), answer.reason, answer.propensity, answer.weights)
        level = 0
        for outcome in self.history:
            if outcome.level > level and answer.weights.get(outcome.model, 0.0) > 0.0:
                level = outcome.level
        ending = Ending(
            prediction,
            None,
            answer.weights,
            self.by or answer.by,
            answer.reason,
            level,
            why(self.history, level, self.asked.turned_away) if level else "",
            answer.propensity,
            answer.hold,
            answer.missing,
            stood_in=answer.stand_ins,
        )
        self._end(ending)

    def _router_failed(self, what: str) -> tuple[str, ...]:
        """The policy cannot decide: the route's default model does, once."""
        if self.trouble is not None:
            self.falling = what
            return self._climb()
        self.trouble = f"router_unavailable: {what}"
        return self._default(self.trouble)

    def _default(self, reason: str) -> tuple[str, ...]:
        self.policy, self.by = Use(self.route.default), "default"
        self.awaiting = ()
        self._note("decline", (self.route.default,), reason)
        return self._ask()

    def _climb(self, *, may_call: bool = True) -> tuple[str, ...]:
        if self.in_flight and may_call:
            return ()
        tried = self.started | self.asked.refused
        rung = next_rung(
            self.fallback, self.route.links, self.history, tried, may_call=may_call, steering=self.route.steering
        )
        if rung.call is not None:
            hindrance = self.asked.hindrance(rung.call, self.ctx)
            if hindrance is not None:
                self.asked.pass_over(rung.call, hindrance)
                return self._climb()
            self._note("fallback", (rung.call,), f"L3: {self.falling}, asking {rung.call}")
            return self.asked.launch((rung.call,))
        if rung.in_hand is not None:
            prediction = combine({rung.in_hand: 1.0}, self.history)
            self._fell(3, prediction, {rung.in_hand: 1.0})
        elif may_call and (model := self.asked.before_its_turn(self.ctx)) is not None:
            self._note("fallback", (model,), f"L3: {self.falling}, asking {model} before its turn")
            return self.asked.launch((model,))
        elif self.fallback.cached and self.recall is not None and (recalled := self.recall(self.ctx.request)) is not None:
            self._fell(4, recalled.prediction, {}, recalled)
        elif self.fallback.preset is not None:
            self._fell(5, self.fallback.preset.prediction(), {})
        else:
            self._end(
                Ending(
                    error=no_answer(self.history, self.asked.turned_away, self.falling, may_call),
                    by=self.by,
                    fallback_reason=self.falling or "",
                )
            )
        return ()

    def _fell(
        self, level: int, prediction: Prediction | None, weights: Mapping[str, float], recalled: Recalled | None = None
    ) -> None:
        reason = f"L{level}: {self.falling}"
        self._note("fallback", tuple(weights), reason, weights=weights)
        ending = Ending(
            prediction=prediction,
            weights=weights,
            by=self.by or "default",
            reason=reason,
            level=level,
            fallback_reason=self.falling or "",
            recalled=recalled,
        )
        self._end(ending)

    def _note(
        self,
        kind: str,
        models: tuple[str, ...],
        reason: str,
        propensity: float = 1.0,
        weights: Mapping[str, float] = NO_WEIGHTS,
    ) -> None:
        self.steps.append(Step(self.at_s, kind, models, reason, propensity, weights))

    def _end(self, ending: Ending) -> None:
        if self.trouble is not None:  # whatever rung was needed afterwards, this comes first
            after = f"; {ending.fallback_reason}" if ending.fallback_reason else ""
            ending = structs.replace(ending, fallback_reason=self.trouble + after)
        unserved = ending.level >= 4 or isinstance(ending.error, NoAnswer | DeadlineExceeded)
        if unserved and self.fallback.later:
            ending = structs.replace(ending, later=True)
        self.ending = ending if self.floor is None else held_to(self.floor, ending)
