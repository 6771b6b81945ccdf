"""The ladder visits each model once and prefers what is in hand; what is held stays bounded."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rheostat.resilience.holds import Holds
from rheostat.resilience.ladder import FallbackSettings, Link, Preset, Rung, next_rung, peer_of
from rheostat.types import Failure, Outcome, Prediction

NAMES = ("a", "b", "c", "d")
LINKS = st.fixed_dictionaries(
    {
        name: st.builds(
            Link,
            st.lists(st.sampled_from(NAMES), max_size=3).map(tuple),
            st.one_of(st.none(), st.sampled_from(NAMES)),
            st.floats(0, 100),
        )
        for name in NAMES
    }
)


@given(LINKS, st.booleans(), st.booleans(), st.sets(st.sampled_from(NAMES[1:])))
def test_it_ends_and_tries_nobody_twice(links: dict[str, Link], lighter: bool, peers: bool, steering: set[str]) -> None:
    settings = FallbackSettings(lighter=lighter, peer=peers)
    started: list[str] = ["a"]
    outcomes: list[Outcome] = []
    model = "a"
    for _ in range(len(NAMES) + 2):
        outcomes.append(Outcome(model, failure=Failure("timeout")))
        peer = peer_of(model, links, started) if peers else None
        rung = Rung(call=peer) if peer is not None else next_rung(settings, links, outcomes, started, steering=steering)
        if rung.call is None:
            assert rung.in_hand is None
            assert set(started) | steering == set(NAMES) or not lighter
            return
        assert rung.call not in started
        model = rung.call
        started.append(model)
    raise AssertionError(f"no end: {started}")


class Climb(RuleBasedStateMachine):
    """One request falls down the ladder as the engine climbs it: the next peer of what failed, else the next rung."""

    @initialize(
        links=LINKS, lighter=st.booleans(), peers=st.booleans(), steering=st.sets(st.sampled_from(NAMES[1:]), max_size=2)
    )
    def begin(self, links: dict[str, Link], lighter: bool, peers: bool, steering: set[str]) -> None:
        self.links, self.steering, self.peers = links, steering, peers
        self.settings = FallbackSettings(lighter=lighter, peer=peers)
        self.started = ["a"]
        self.running: str | None = "a"
        self.outcomes: list[Outcome] = []
        self.end: Rung | None = None

    def climb(self, may_call: bool = True) -> None:
        """What the engine does when the policy has given up."""
        rung = next_rung(self.settings, self.links, self.outcomes, self.started, may_call=may_call, steering=self.steering)
        assert rung.in_hand is None or rung.call is None
        if rung.call is None:
            self.end, self.running = rung, None
        else:
            self.ask(rung.call)

    def ask(self, model: str) -> None:
        assert model not in self.started
        self.started.append(model)
        self.running = model

    @precondition(lambda self: self.running)
    @rule()
    def fails(self) -> None:
        model = self.running
        assert model is not None
        self.outcomes.append(Outcome(model, failure=Failure("timeout")))
        peer = peer_of(model, self.links, self.started) if self.peers else None
        if peer is not None:
            self.ask(peer)
        else:
            self.climb()

    @precondition(lambda self: self.running)
    @rule()
    def answers_and_is_not_enough(self) -> None:
        assert self.running is not None
        self.outcomes.append(Outcome(self.running, Prediction(self.running)))
        self.climb()

    @precondition(lambda self: self.running)
    @rule()
    def time_is_up(self) -> None:
        self.climb(may_call=False)
        assert self.end is not None

    @precondition(lambda self: not self.running)
    @rule()
    def another_request(self) -> None:
        self.started, self.running, self.outcomes, self.end = ["a"], "a", [], None

    @invariant()
    def the_best_in_hand_is_said_when_nobody_is_asked_any_more(self) -> None:
        if self.end is None:
            return
        said = [o for o in self.outcomes if o.ok and o.model not in self.steering]
        if not said or not self.settings.lighter:
            assert self.end == Rung()
        else:
            assert self.end.in_hand is not None
            assert self.links[self.end.in_hand].cost == max(self.links[o.model].cost for o in said)

    @invariant()
    def nobody_is_asked_twice(self) -> None:
        assert len(set(self.started)) == len(self.started)
        assert len(self.outcomes) <= len(self.started)


TestClimb = Climb.TestCase
TestClimb.settings = settings(max_examples=150, stateful_step_count=12, deadline=None)


def test_the_dearest_answer_in_hand_comes_before_any_new_call() -> None:
    links = {"a": Link(cost=1.0), "b": Link(cost=5.0), "c": Link(cost=9.0, lighter="d"), "d": Link()}
    outcomes = [Outcome("a", Prediction("x")), Outcome("b", Prediction("y")), Outcome("c", failure=Failure("timeout"))]
    assert next_rung(FallbackSettings(), links, outcomes, {"a", "b", "c"}) == Rung(in_hand="b")
    assert next_rung(FallbackSettings(), links, outcomes[2:], {"c"}) == Rung(call="d")
    assert next_rung(FallbackSettings(), links, outcomes, {"a", "b", "c"}, steering=("b",)) == Rung(in_hand="a")
    late = next_rung(FallbackSettings(preset=Preset(label="p")), links, outcomes[2:], {"c"}, may_call=False)
    assert late == Rung()
    assert next_rung(FallbackSettings(lighter=False), links, outcomes, {"a", "b", "c"}) == Rung()


def test_only_models_of_the_route_stand_in() -> None:
    links = {"a": Link(peers=("elsewhere", "c"), lighter="elsewhere"), "c": Link(peers=("elsewhere",))}
    outcomes = [Outcome("a", failure=Failure("timeout"))]
    assert peer_of("a", links, {"a"}) == "c"
    assert peer_of("c", links, {"a", "c"}) is None
    assert next_rung(FallbackSettings(), links, outcomes, {"a"}) == Rung(call="c")
    assert next_rung(FallbackSettings(), links, outcomes, {"a", "c"}) == Rung()


@given(st.lists(st.tuples(st.text(max_size=80), st.floats(0, 30)), max_size=60), st.integers(1, 5))
def test_holds_stay_within_their_limit_and_forget_in_time(steps: list[tuple[str, float]], limit: int) -> None:
    holds = Holds(limit, idle_s=20.0)
    now = 0.0
    last: dict[str, tuple[str, float]] = {}
    for number, (key, pause) in enumerate(steps):
        now += pause
        found = holds.get(key, now)
        if found is not None:
            assert found == last[key][0]
            assert now - last[key][1] <= 20.0
        holds.put(key, str(number), now)
        last[key] = (str(number), now)
        assert len(holds) <= limit
        assert holds.get(key, now) == str(number)


def test_many_keys_leave_ten_thousand_and_long_keys_are_not_kept_whole() -> None:
    holds = Holds(10_000)
    for number in range(100_000):
        holds.put(f"s{number}", "kept", number / 1000)
    assert len(holds) == 10_000
    holds.put("x" * 1_000_000, "kept", 100.0)
    assert holds.get("x" * 1_000_000, 100.0) == "kept"
    assert max(len(key) for key in holds._entries) <= 64
