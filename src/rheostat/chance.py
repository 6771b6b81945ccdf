"""Chance without a random number generator: a hash, so that every draw can be repeated."""

from __future__ import annotations

import xxhash

_SCALE = 2.0**-64


def chance(salt: str, key: str) -> float:
    """Return a uniform draw in [0, 1) that depends on `salt` and `key` alone.

    The same pair gives the same number in every process and on every machine; different salts are independent.
    """
    return xxhash.xxh3_64_intdigest(f"{salt}\x1f{key}".encode("utf-8", "surrogatepass")) * _SCALE
