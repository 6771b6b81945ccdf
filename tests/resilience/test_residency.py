"""What is in memory, as a state machine: whatever happens, its promises hold."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec import structs

from rheostat.resilience import residency as states
from rheostat.resilience.residency import Holding, MemorySettings, Room, kept_until, make_room, relieve

NAMES = ("a", "b", "c", "d")
ANY = st.sampled_from(NAMES)


class Memory(RuleBasedStateMachine):
    """Models are wanted, loaded, used, pinned, told to go and evicted in any order, in a memory that fits some of them."""

    @initialize(sizes=st.tuples(*(st.integers(1, 60) for _ in NAMES)), keep=st.sampled_from([0.0, 10.0]))
    def begin(self, sizes: tuple[int, ...], keep: float) -> None:
        self.now = 0.0
        self.keep = keep
        self.size = dict(zip(NAMES, sizes, strict=True))
        self.models = {name: Holding(bytes=self.size[name], keep_s=keep) for name in NAMES}
        self.used = 0  # what the system would tell
        self.loads = dict.fromkeys(NAMES, 0)  # under way

    def room(self) -> Room:
        return Room(100.0 - self.used, 85.0 - self.used, 70.0 - self.used)

    def unloaded(self, name: str) -> None:
        self.used -= self.size[name]

    @rule(seconds=st.sampled_from([0.5, 3.0, 11.0, 50.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(name=ANY, forced=st.booleans())
    def want(self, name: str, forced: bool) -> None:
        if self.models[name].state != "unloaded" or (self.models[name].retry_at > self.now and not forced):
            return
        before = dict(self.models)
        self.models[name] = states.loading(states.wanted(self.models[name], self.now))
        plan = make_room(name, self.models, self.room(), self.now, forced)
        for key in plan.evict:
            gone = before[key]
            assert gone.state == "loaded"
            assert not gone.users
            assert not gone.pinned
            assert forced or kept_until(gone) <= self.now
            stayed = [each for other, each in before.items() if other not in plan.evict and each.state == "loaded"]
            stayed = [each for each in stayed if not each.users and not each.pinned]
            assert all(each.used_at >= gone.used_at or kept_until(each) > self.now for each in stayed)
            self.models[key] = states.evicted(gone, self.now)
            self.unloaded(key)
        if plan.refused:
            assert not plan.evict
            assert plan.retry_after_s > 0.0
            self.models[name] = states.refused(self.models[name], self.now + plan.retry_after_s)
            return
        assert self.used + self.size[name] <= 100.0
        self.used += self.size[name]  # it fills while it loads
        self.loads[name] += 1

    @rule(name=ANY)
    def load_ends(self, name: str) -> None:
        if self.models[name].state == "loading":
            self.models[name] = states.loaded(self.models[name], self.size[name], self.now)
            self.loads[name] -= 1

    @rule(name=ANY)
    def load_fails(self, name: str) -> None:
        if self.models[name].state == "loading":
            failures = self.models[name].failures
            self.models[name] = states.failed(self.models[name], self.now)
            pause = self.models[name].retry_at - self.now
            assert pause == min(2.0**failures, states.LAST_RETRY_S)
            self.loads[name] -= 1
            self.unloaded(name)

    @rule(name=ANY)
    def call_begins(self, name: str) -> None:
        if self.models[name].state == "loaded":
            self.models[name] = states.entered(self.models[name], self.now)

    @rule(name=ANY)
    def call_ends(self, name: str) -> None:
        if self.models[name].users:
            before = self.models[name].state
            self.models[name] = states.left(self.models[name], self.now)
            if before == "unloading" and self.models[name].state == "unloaded":
                self.unloaded(name)

    @rule(name=ANY)
    def told_to_go(self, name: str) -> None:
        if self.models[name].state == "loaded":
            self.models[name] = states.sent_off(self.models[name])
            if self.models[name].state == "unloaded":
                self.unloaded(name)

    @rule(name=ANY, pinned=st.booleans())
    def pin(self, name: str, pinned: bool) -> None:
        self.models[name] = structs.replace(self.models[name], pinned=pinned)

    @rule(other=st.integers(-40, 40))
    def pressure(self, other: int) -> None:
        """The rest of the process takes more or less, and somebody looks."""
        self.used += other
        room = self.room()
        gone = relieve(self.models, room, self.now)
        assert room.high < 0 or not gone
        for key in gone:
            assert room.limit < 0 or kept_until(self.models[key]) <= self.now
            self.models[key] = states.evicted(self.models[key], self.now)
            self.unloaded(key)
        self.used -= other

    @precondition(lambda self: self.models)
    @invariant()
    def what_is_counted_is_there(self) -> None:
        there = sum(self.size[name] for name, each in self.models.items() if each.state != "unloaded")
        assert self.used == there

    @precondition(lambda self: self.models)
    @invariant()
    def one_load_of_a_model_at_a_time(self) -> None:
        for name, each in self.models.items():
            assert self.loads[name] == (1 if each.state == "loading" else 0)
            assert not each.users or each.state in ("loaded", "unloading")
            assert each.state != "unloading" or each.users
            assert 0 <= each.bounces <= states.MOST_BOUNCES

    def teardown(self) -> None:
        """When all is over, nothing is counted any more."""
        if not hasattr(self, "models"):
            return
        for name in NAMES:
            self.load_ends(name)
            self.told_to_go(name)
            while self.models[name].users:
                self.call_ends(name)
        assert self.used == 0
        assert all(each.state == "unloaded" for each in self.models.values())


Memory.models = {}  # type: ignore[attr-defined]
TestMemory = Memory.TestCase
TestMemory.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)


def there(used_at: float, size: int = 30, **more: object) -> Holding:
    return structs.replace(Holding(bytes=size, state="loaded", loaded_at=-1000.0, used_at=used_at), **more)


FULL = Room(10.0, -5.0, -20.0)  # 90 of 100 are used


def test_those_used_longest_ago_go_until_the_low_mark() -> None:
    models = {"a": there(3.0), "b": there(1.0), "c": there(2.0), "new": Holding(bytes=30)}
    assert make_room("new", models, FULL, 10.0).evict == ("b", "c")  # 50 have to go: 20 down to low, 30 to come
    assert relieve(models, FULL, 10.0) == ("b",)


def test_nothing_goes_for_a_load_that_would_not_fit_all_the_same() -> None:
    models = {"a": there(3.0), "b": there(1.0, pinned=True), "c": there(2.0, users=1), "new": Holding(bytes=45)}
    plan = make_room("new", models, FULL, 10.0)
    assert plan.evict == ()
    assert plan.busy  # c will be idle at some time
    assert "in use" in plan.refused
    models["c"] = there(2.0, pinned=True)
    assert not make_room("new", models, FULL, 10.0).busy


def test_above_high_is_allowed_when_nothing_may_go() -> None:
    models = {"a": there(3.0, pinned=True), "new": Holding(bytes=10)}
    assert make_room("new", models, FULL, 10.0) == states.Plan()


def test_who_was_loaded_a_short_time_ago_stays_and_says_until_when() -> None:
    models = {"a": there(3.0, loaded_at=0.0), "b": there(1.0, loaded_at=-20.0), "new": Holding(bytes=60)}
    plan = make_room("new", models, FULL, 10.0)
    assert plan.evict == ()
    assert plan.retry_after_s == 50.0  # both are needed, and a stays until 60
    assert set(make_room("new", models, FULL, 10.0, forced=True).evict) == {"a", "b"}
    assert relieve(models, FULL, 10.0) == ()
    assert relieve(models, Room(-1.0, -16.0, -31.0), 10.0) == ("b", "a")  # over the limit itself


def test_two_that_fight_for_one_place_are_changed_ever_more_seldom() -> None:
    models = {name: Holding(bytes=60, keep_s=10.0) for name in ("a", "b")}
    inside, changes, now = "", [], 0.0
    while now < 2000.0:
        for name in ("a", "b"):  # both are wanted all the time
            if name == inside:
                models[name] = states.left(states.entered(models[name], now), now)
                continue
            models[name] = states.wanted(models[name], now)
            plan = make_room(name, models, Room(40.0, 25.0, 10.0) if inside else Room(100.0, 85.0, 70.0), now)
            if plan.refused:
                continue
            for key in plan.evict:
                models[key] = states.evicted(models[key], now)
            models[name] = states.loaded(states.loading(models[name]), 60, now)
            inside = name
            changes.append(now)
        now += 1.0
    gaps = [round(after - before) for before, after in pairwise(changes)]
    assert gaps[:4] == [10, 10, 20, 20]
    assert max(gaps) == 160  # 10 s doubled four times
    assert len(changes) < 2000 / 10 / 10  # without the guard: one change every 10 s
    models[inside] = states.evicted(models[inside], now)
    assert states.wanted(models[inside], now + 1000.0).bounces == 0  # the fight is over


def test_a_model_that_is_in_use_or_pinned_cannot_be_evicted() -> None:
    for wrong in (there(1.0, users=1), there(1.0, pinned=True), Holding()):
        with pytest.raises(ValueError, match=r"not evicted|expected a model"):
            states.evicted(wrong, 2.0)
    with pytest.raises(ValueError, match="more calls ended"):
        states.left(there(1.0), 2.0)


@pytest.mark.parametrize(
    ("limit", "amount"), [("4GiB", 2**32), ("500 MB", 5e8), ("70%", 0.7), ("1.5gib", 1.5 * 2**30), ("100%", 1.0)]
)
def test_limits_people_write(limit: str, amount: float) -> None:
    assert MemorySettings(limit=limit).amount == pytest.approx(amount)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"limit": "lots"}, "`limit` must be a size such as 4GiB"),
        ({"limit": "4"}, "`limit` must be a size"),
        ({"limit": "120%"}, "`limit` must be more than 0% and at most 100%"),
        ({"limit": "0%"}, "`limit` must be more than 0%"),
        ({"limit": "12kB"}, "`limit` must be 1MiB or more"),
        ({"high": 1.2}, "`high` must be more than 0"),
        ({"low": 0.9}, "`low` must be more than 0 and at most `high`"),
    ],
)
def test_limits_that_make_no_sense(given: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        MemorySettings(**given)  # type: ignore[arg-type]
