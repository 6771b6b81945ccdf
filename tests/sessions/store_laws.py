"""What holds of every store of conversations, as a state machine beside a plain model of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from rheostat.clock import ManualClock
from rheostat.sessions.store import LEASE_S, Change, Kept, SessionKey, Store, changed

T = TypeVar("T")
AGE_S = 100.0
KEYS = [SessionKey(tenant, name) for tenant in (None, "", "a", "b") for name in ("s", "ab", 's"; DROP', "模\x00")]
KEYS += [SessionKey("a", "b\x00s")]
BYTES = st.binary(max_size=24)


class StoreLaws(RuleBasedStateMachine):
    """Every operation does what it does to a dictionary of sessions; `make` is the store, `moves` whether its clock can be
    moved."""

    moves = True

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.kept: dict[SessionKey, tuple[Kept, float]] = {}
        self.leases: dict[SessionKey, tuple[str, float]] = {}
        self.number = 0
        self.store: Store

    def make(self) -> Store:
        raise NotImplementedError

    def run(self, work: Awaitable[T]) -> T:
        async def whole() -> T:
            return await work

        return self.loop.run_until_complete(whole())

    @initialize()
    def begin(self) -> None:
        self.store = self.make()

    tokens = Bundle("tokens")

    def held(self, key: SessionKey, token: str | None = None) -> bool:
        lease = self.leases.get(key)
        alive = lease is not None and self.clock.wall() < lease[1]
        return alive and (token is None or (lease is not None and lease[0] == token))

    def known(self, key: SessionKey) -> Kept:
        found = self.kept.get(key)
        return Kept(b"", ()) if found is None or self.clock.wall() - found[1] >= AGE_S else found[0]

    @rule(target=tokens, key=st.sampled_from(KEYS))
    def open(self, key: SessionKey) -> Any:
        self.number += 1
        token = f"token-{self.number}"
        found = self.run(self.store.open(key, token))
        if self.held(key):
            assert found is None
        else:
            assert found == self.known(key)
            if not self.known(key).turns:
                self.kept.pop(key, None)
            self.leases[key] = (token, self.clock.wall() + LEASE_S)
        return key, token

    @rule(which=tokens)
    def renew(self, which: Any) -> None:
        key, token = which
        mine = self.held(key, token)
        assert self.run(self.store.renew(key, token)) is mine
        if mine:
            self.leases[key] = (token, self.clock.wall() + LEASE_S)

    @rule(which=tokens, head=BYTES, turns=st.lists(BYTES, min_size=1, max_size=3), cut=st.tuples(*[st.integers(0, 4)] * 2))
    def change(self, which: Any, head: bytes, turns: list[bytes], cut: tuple[int, int]) -> None:
        key, token = which
        mine, count = self.held(key, token), len(self.known(key).turns)
        first, last = sorted(min(count, each) for each in cut)
        change = Change(b"h" + head, tuple(turns), first, last)
        assert self.run(self.store.close(key, token, change)) is mine
        if mine:
            self.kept[key] = (changed(self.known(key), change), self.clock.wall())
            del self.leases[key]

    @rule(which=tokens)
    def release(self, which: Any) -> None:
        key, token = which
        mine = self.held(key, token)
        assert self.run(self.store.close(key, token, None)) is mine
        if mine:
            del self.leases[key]

    @rule(key=st.sampled_from(KEYS))
    def forget(self, key: SessionKey) -> None:
        there = bool(self.known(key).turns)
        found = self.run(self.store.forget(key))
        assert found or not there
        self.kept.pop(key, None)
        self.leases.pop(key, None)

    @rule(seconds=st.sampled_from([0.5, LEASE_S, AGE_S - LEASE_S, AGE_S]))
    def wait(self, seconds: float) -> None:
        if self.moves:
            self.clock.advance(seconds)

    @invariant()
    def told(self) -> None:
        if not hasattr(self, "store"):
            return
        told = {(each.tenant, each.name): (each.turns, each.busy) for each in self.run(self.store.told(100))}
        alive = {key: self.known(key) for key in self.kept}
        assert told == {tuple(key): (len(kept.turns), self.held(key)) for key, kept in alive.items() if kept.turns}

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.run(self.store.aclose())
        self.loop.close()
