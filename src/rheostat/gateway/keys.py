"""Who may ask: the clients' keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from rheostat.errors import Forbidden, Unauthorized

if TYPE_CHECKING:
    from rheostat.config.schema import KeySettings


class Keyring:
    """Finds the settings of a presented key. Keys are compared by their SHA-256, so the time taken tells nothing of them."""

    def __init__(self, keys: Sequence[KeySettings]) -> None:
        self._keys = {sha256(key.key.encode()).digest(): key for key in keys}

    def find(self, found: Mapping[bytes, bytes]) -> KeySettings:
        """Return the settings of the key in `authorization: Bearer` or `x-api-key`.

        Raises:
            Unauthorized: no key, or one that is not known.
        """
        presented = bearer(found.get(b"authorization")) or found.get(b"x-api-key")
        if presented is None:
            raise Unauthorized("a key is needed: send `authorization: Bearer KEY` or `x-api-key: KEY`", "authorization")
        settings = self._keys.get(sha256(presented).digest())
        if settings is None:
            raise Unauthorized("this key is not known here", "authorization")
        return settings


def bearer(value: bytes | None) -> bytes | None:
    """Return the token of a `Bearer` authorization header, or None when it is not one."""
    if value is None:
        return None
    scheme, _, token = value.strip().partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" and token else None


def allow_route(key: KeySettings | None, route: str) -> None:
    """Raise `Forbidden` when the key is limited to other routes."""
    if key is not None and key.routes and route not in key.routes:
        raise Forbidden("this key may not use this route", "route.name")


def allow_force(key: KeySettings | None) -> None:
    """Raise `Forbidden` unless the caller may choose the model by hand."""
    if key is None or not key.may_force:
        raise Forbidden("route.force_model and route.skip_route need a key with `may_force: true`", "route")
