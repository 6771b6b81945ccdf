"""What a store of conversations has to do."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple, Protocol

import msgspec
from msgspec import Struct

LEASE_S = 10.0
"""How long a turn has its session for itself unless it says that it goes on; a process that dies holds it no longer."""
OVERHEAD = 512
"""Bytes that a session takes besides its content, rounded up."""


class SessionKey(NamedTuple):
    """Whose session, and its name: two tenants never share one."""

    tenant: str | None
    name: str

    @property
    def digest(self) -> str:
        """32 hex digits that nobody can make equal for two keys."""
        return blake2b(msgspec.json.encode((self.tenant, self.name)), digest_size=16).hexdigest()


class Kept(NamedTuple):
    """A conversation as it is stored: what stands for all of it, and its turns, oldest first."""

    head: bytes
    turns: tuple[bytes, ...]


NOTHING = Kept(b"", ())


class Change(Struct, frozen=True):
    """What a turn leaves behind: of the stored turns those from `first` up to `last` stay, `turns` follow them, and `head`
    replaces the old one."""

    head: bytes
    turns: tuple[bytes, ...]
    first: int = 0
    last: int = 0


class Told(Struct, frozen=True):
    """What is told of a session without anything that was said in it. `used` is the wall time of its last turn."""

    tenant: str | None
    name: str
    turns: int
    bytes: int
    used: float
    busy: bool = False


class Store(Protocol):
    """Keeps conversations. A session is opened for one turn at a time, under a `token`; every method is whole or not at all.

    Raises (every method):
        StoreError: the store cannot be used now. What was asked may have been done all the same.
    """

    async def open(self, key: SessionKey, token: str) -> Kept | None:
        """Take the session for `LEASE_S` seconds and return what is kept; None while another turn has it."""

    async def renew(self, key: SessionKey, token: str) -> bool:
        """Keep it for as long again; False when the time was over and another turn may have it."""

    async def close(self, key: SessionKey, token: str, change: Change | None) -> bool:
        """Give it back, changed or as it was; False when it was no longer this turn's, and then nothing is changed."""

    async def forget(self, key: SessionKey) -> bool:
        """Delete a session, also under a turn that has it; False when there is none."""

    async def told(self, most: int) -> Sequence[Told]:
        """Tell of at most `most` sessions, those used last first."""

    async def aclose(self) -> None:
        """Give back what was opened; called once."""


def size_of(kept: Kept) -> int:
    """Return the bytes that a session takes."""
    return OVERHEAD + len(kept.head) + sum(map(len, kept.turns))


def changed(kept: Kept, change: Change) -> Kept:
    """Return the session after a turn."""
    return Kept(change.head, kept.turns[change.first : change.last] + change.turns)
