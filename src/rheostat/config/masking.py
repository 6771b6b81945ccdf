"""Which texts of a config are secret."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from rheostat.backends.secrets import secrets_in_url
from rheostat.config.document import Node

SHORTEST = 6
"""Shorter texts are not treated as secret: hiding every `abc` would make logs unreadable."""

_SECRETIVE = re.compile(r"(^|[_-])(api_?key|key|secret|token|password|passwd|authorization|credentials?)$", re.IGNORECASE)
_NOT_SEARCHED = frozenset({"routes", "labels", "task"})


def secrets_in(root: Node, variables: Mapping[str, str]) -> tuple[str, ...]:
    """Return every text that no output may show, longest first: keys, secrets, tokens, passwords and headers of the
    config, passwords and tokens inside URLs, and environment variables so named. Texts under SHORTEST are left out."""
    found = {value for name, value in variables.items() if _SECRETIVE.search(name)}
    for value in variables.values():
        found.update(secrets_in_url(value))
    for key, child in root.value.items() if isinstance(root.value, dict) else ():
        if key not in _NOT_SEARCHED:
            found.update(_below(child, bool(_SECRETIVE.search(key))))
    return tuple(sorted((text for text in found if len(text) >= SHORTEST), key=lambda text: (-len(text), text)))


def _below(node: Node, secret: bool) -> Iterator[str]:
    if isinstance(node.value, dict):
        for key, child in node.value.items():
            yield from _below(child, secret or key == "headers" or bool(_SECRETIVE.search(key)))
    elif isinstance(node.value, list):
        for child in node.value:
            yield from _below(child, secret)
    elif secret and not isinstance(node.value, bool) and node.source:
        yield str(node.value) if node.variables else node.source
    elif isinstance(node.value, str):
        yield from secrets_in_url(node.value)
