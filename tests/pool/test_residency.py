"""Loading and unloading with threads: one load at a time, nobody in use goes, everything is given back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from rheostat.errors import ConfigError, ContractError, ModelError
from rheostat.pool import memory, residency
from rheostat.pool.on_demand import OnDemand
from rheostat.pool.residency import Residency
from rheostat.resilience.residency import MemorySettings
from rheostat.types import Prediction

MIB = 2**20
WAIT_S = 10.0


class House:
    """A process whose memory is what its models say they take, and the switches of those models."""

    def __init__(self) -> None:
        self.there: dict[str, int] = {}
        self.opened: list[str] = []
        self.at_a_time = 0
        self.most = 0
        self.slow = 0.0
        self.broken: set[str] = set()
        self.gate = threading.Event()
        self.lock = threading.Lock()
        self.gate.set()

    def bytes(self) -> int:
        with self.lock:
            return 10 * MIB + sum(self.there.values())

    def open(self, name: str, size: int) -> Callable[[], Weights]:
        def opened() -> Weights:
            with self.lock:
                self.at_a_time += 1
                self.most = max(self.most, self.at_a_time)
            time.sleep(self.slow)
            with self.lock:
                self.at_a_time -= 1
                if name in self.broken:
                    raise ContractError(f"{name} is broken")
                assert name not in self.there
                self.there[name] = size * MIB
                self.opened.append(name)
            return Weights(self, name)

        return opened


class Weights:
    labels: tuple[str, ...] | None = ("yes", "no")

    def __init__(self, house: House, name: str) -> None:
        self.house, self.name = house, name

    def predict(self, rows: Sequence[object]) -> list[Prediction]:
        assert self.name in self.house.there, "used after it was unloaded"
        self.house.gate.wait(WAIT_S)
        assert self.name in self.house.there, "unloaded while in use"
        return [Prediction(label="yes", confidence=0.9) for _ in rows]

    def close(self) -> None:
        with self.house.lock:
            del self.house.there[self.name]


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    made = House()
    monkeypatch.setattr(memory, "process_bytes", made.bytes)
    yield made
    made.gate.set()


def host(manager: Residency, house: House, name: str, size: int = 20, keep_s: float = 0.0) -> OnDemand:
    """Take a model in and unload it again."""
    guest = manager.host(name, keep_s, 1, house.open(name, size), house.open(name, size))
    assert manager.unload(guest)
    return guest


def limit(mib: int) -> MemorySettings:
    return MemorySettings(limit=f"{mib}MiB", high=0.9, low=0.6)


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.002)


def test_many_threads_that_want_a_model_load_it_once(house: House) -> None:
    manager = Residency(limit(100))
    guest = host(manager, house, "a")
    house.slow = 0.1
    with ThreadPoolExecutor(16) as threads:
        replies = list(threads.map(lambda _: guest.predict(["row"])[0], range(64)))
    assert all(isinstance(reply, Prediction) for reply in replies)
    assert house.opened == ["a", "a"]  # at start and now
    assert guest.tally.loads == 2
    assert guest.tally.waits >= 1
    assert guest.holding.users == 0
    assert guest.holding.bytes == 20 * MIB


def test_threads_race_over_more_models_than_fit(house: House) -> None:
    manager = Residency(limit(100))  # 10 are the process's own; four of twenty fit under the limit
    guests = [host(manager, house, name) for name in "abcdefgh"]
    house.slow = 0.001

    def ask(turn: int) -> bool:
        guest = guests[(turn * 7 + turn // 5) % len(guests)]
        try:
            return isinstance(guest.predict(["row"])[0], Prediction)
        except ModelError:
            return False

    with ThreadPoolExecutor(8) as threads:
        answered = list(threads.map(ask, range(400)))
    assert sum(answered) >= 390
    assert house.most == 1  # loads one after another
    assert house.bytes() <= 100 * MIB
    assert sum(guest.tally.evictions for guest in guests) > 20
    for guest in guests:
        guest.close()
    until(lambda: not house.there)
    assert not manager._guests


def test_those_used_longest_ago_go_until_the_low_mark(house: House) -> None:
    manager = Residency(limit(100))
    guests = {name: host(manager, house, name) for name in "abcde"}
    for name in "abcdab":  # 90 of 100 are full then, which is the high mark
        guests[name].predict(["row"])
    assert sum(guest.tally.evictions for guest in guests.values()) == 0
    guests["e"].predict(["row"])
    assert sorted(house.there) == ["b", "e"]  # 60 have to go, so that 30 + 20 are in before it and 60 never passed
    assert [guests[name].tally.evictions for name in "abcde"] == [1, 0, 1, 1, 0]


def test_a_model_in_use_stays_and_who_needs_its_room_waits_for_it(house: House) -> None:
    manager = Residency(limit(40))
    first, second = host(manager, house, "a", 25), host(manager, house, "b", 25)
    house.gate.clear()
    with ThreadPoolExecutor(2) as threads:
        calls = [threads.submit(first.predict, ["row"])]
        until(lambda: first.holding.users == 1)
        calls.append(threads.submit(second.predict, ["row"]))
        until(lambda: second.loading)
        time.sleep(0.1)
        assert list(house.there) == ["a"]
        house.gate.set()
        assert [type(call.result(WAIT_S)[0]) for call in calls] == [Prediction, Prediction]
    assert list(house.there) == ["b"]


def test_who_cannot_wait_any_longer_is_told_why(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(residency, "PATIENCE_S", 0.1)
    manager = Residency(limit(40))
    first, second = host(manager, house, "a", 25), host(manager, house, "b", 25)
    house.gate.clear()
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(first.predict, ["row"])
        until(lambda: first.holding.users == 1)
        with pytest.raises(
            ModelError, match=r"no room: it takes 25 MiB, 5 MiB are free, and what is in memory is in use"
        ) as told:
            second.predict(["row"])
        assert told.value.kind == "unavailable"
        assert told.value.retry_after_s == pytest.approx(1.0, abs=0.2)
        with pytest.raises(ModelError, match="no room"):  # not looked for again at once
            second.predict(["row"])
        assert second.wait_s(time.monotonic()) > 0.0
        house.gate.set()
        call.result(WAIT_S)
    assert manager.unload(first)
    assert second.wait_s(time.monotonic()) == 0.0  # something went, so it may try again
    second.predict(["row"])


def test_a_model_just_loaded_is_kept_so_that_two_do_not_fight(house: House) -> None:
    manager = Residency(limit(40))
    first, second = (host(manager, house, name, 25, keep_s=60.0) for name in "ab")
    first.predict(["row"])
    for _ in range(20):
        with pytest.raises(ModelError, match="too short a time ago"):
            second.predict(["row"])
    assert house.opened == ["a", "b", "a"]
    assert second.tally.evictions == first.tally.evictions == 0
    first.predict(["row"])  # who is in answers
    manager.load(second, forced=True)  # an operator may say otherwise
    assert list(house.there) == ["b"]


def test_a_pinned_model_stays(house: House) -> None:
    manager = Residency(limit(40))
    first, second = host(manager, house, "a", 25), host(manager, house, "b", 25)
    first.predict(["row"])
    manager.pin(first, True)
    with pytest.raises(ModelError, match="nothing more can be unloaded"):
        second.predict(["row"])
    manager.pin(first, False)
    second.predict(["row"])
    assert list(house.there) == ["b"]


def test_a_load_that_fails_is_tried_again_after_a_pause(house: House) -> None:
    manager = Residency(limit(100))
    guest = host(manager, house, "a")
    house.broken.add("a")
    for _ in range(5):
        with pytest.raises(ModelError, match="it cannot be loaded: a is broken") as told:
            guest.predict(["row"])
        assert told.value.kind == "unavailable"
    assert guest.tally.failures == 1  # the others were told at once
    assert guest.status(time.monotonic())["why"] == "it cannot be loaded: a is broken"
    house.broken.clear()
    until(lambda: not guest.wait_s(time.monotonic()))
    assert guest.predict(["row"])
    assert guest.holding.failures == 0


def test_a_failed_load_wakes_all_that_wait_for_it(house: House) -> None:
    manager = Residency(limit(100))
    guest = host(manager, house, "a")
    house.broken.add("a")
    house.slow = 0.1
    with ThreadPoolExecutor(8) as threads:
        calls = [threads.submit(guest.predict, ["row"]) for _ in range(8)]
        for call in calls:
            with pytest.raises(ModelError, match="a is broken"):
                call.result(WAIT_S)
    assert guest.tally.failures == 1


def test_unloading_waits_for_calls_and_the_next_one_loads_again(house: House) -> None:
    manager = Residency(limit(100))
    guest = host(manager, house, "a")
    house.gate.clear()
    with ThreadPoolExecutor(2) as threads:
        call = threads.submit(guest.predict, ["row"])
        until(lambda: guest.holding.users == 1)
        assert not manager.unload(guest, 0.05)
        with pytest.raises(ModelError, match="it is being unloaded"):
            guest.predict(["row"])
        gone = threads.submit(manager.unload, guest, WAIT_S)
        house.gate.set()
        assert call.result(WAIT_S)
        assert gone.result(WAIT_S)
    assert not house.there
    assert guest.predict(["row"])


def test_closing_lets_calls_end_and_nothing_stays(house: House) -> None:
    manager = Residency(limit(100))
    guest = host(manager, house, "a")
    house.gate.clear()
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(guest.predict, ["row"])
        until(lambda: guest.holding.users == 1)
        guest.close()
        assert "a" in house.there
        house.gate.set()
        assert call.result(WAIT_S)
    until(lambda: not house.there)
    assert not manager._guests
    with pytest.raises(ModelError, match="it is being unloaded"):
        guest.predict(["row"])


def test_closing_during_a_load_lets_the_load_go_too(house: House) -> None:
    manager = Residency(limit(100))
    guest = host(manager, house, "a")
    house.slow = 0.1
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(guest.predict, ["row"])
        until(lambda: guest.loading)
        guest.close()
        assert call.result(WAIT_S)
    until(lambda: not house.there)
    assert not manager._guests


def test_memory_that_others_fill_is_made_room_for(house: House) -> None:
    manager = Residency(limit(100))
    guests = [host(manager, house, name) for name in "abc"]
    for guest in guests:
        guest.predict(["row"])
    manager.relieve()
    assert len(house.there) == 3
    house.there["something else"] = 30 * MIB  # 100 of 100
    manager.relieve()
    assert list(house.there) == ["c", "something else"]


def test_who_never_fits_is_refused_at_start(house: House) -> None:
    manager = Residency(limit(40))
    with pytest.raises(ConfigError, match=r"resident: no room: it takes 50 MiB, 30 MiB are free.*raise `memory.limit`"):
        manager.host("a", 0.0, 50 * MIB, house.open("a", 50), house.open("a", 50))
    assert not manager._guests
    house.broken.add("b")
    with pytest.raises(ContractError, match="b is broken"):
        manager.host("b", 0.0, 1, house.open("b", 1), house.open("b", 1))
    assert not manager._guests
