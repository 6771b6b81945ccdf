"""Keys kept out of everything that is shown."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from urllib.parse import quote

MASK = "***"
_SHORTEST = 4


def mask(text: str, secrets: Iterable[str]) -> str:
    """Return `text` with every secret replaced, also where it stands URL-encoded or in base64."""
    for secret in secrets:
        if len(secret) < _SHORTEST:
            continue
        encoded = base64.b64encode(secret.encode("utf-8", "replace")).decode()
        for form in (secret, quote(secret, safe=""), encoded, encoded.rstrip("=")):
            text = text.replace(form, MASK)
    return text


def masked_url(url: str) -> str:
    """Return the URL without user, password, query and fragment: these are where keys are kept."""
    scheme, colon, rest = url.partition("://")
    if not colon:
        return MASK
    address = rest.partition("?")[0].partition("#")[0]
    return f"{scheme}://{address.rpartition('@')[2]}"  # the last @: a password may hold any character


def secrets_in_url(url: str) -> list[str]:
    """Return what of a URL must not be shown: user and password, and the values of its query."""
    address, _, query = url.partition("://")[2].partition("#")[0].partition("?")
    userinfo = address.rpartition("@")[0]
    values = [pair.partition("=")[2] for pair in query.split("&")]
    return [each for each in (userinfo, userinfo.partition(":")[2], *values) if each]
