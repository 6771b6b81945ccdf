"""What came in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from rheostat.types.priority import Priority


class Request(Struct, frozen=True):
    """One question to the pool, parsed once at the edge.

    `data` is what the models see (text, or a mapping of features). `text` is the part of it that rules and text signals
    read. `priority` says who goes first where not all can be served. `deadline` is absolute, in monotonic seconds;
    `max_cost` is what all calls together may cost. `force_model` and `skip_route` are set only for callers who may. With
    `no_cache` no answer to an earlier request is given, with `no_store` this one's is not kept. `completing` marks a
    request that is asked again after its client was answered.
    """

    id: str
    data: Any
    text: str = ""
    meta: Mapping[str, Any] = {}
    headers: Mapping[str, str] = {}
    route: str = "default"
    session: str | None = None
    tenant: str | None = None
    priority: Priority = "normal"
    received: float = 0.0
    deadline: float = float("inf")
    max_cost: float = float("inf")
    force_model: str | None = None
    skip_route: bool = False
    no_cache: bool = False
    no_store: bool = False
    completing: bool = False

    @property
    def is_directed(self) -> bool:
        """Whether the caller and not the policy says which model answers."""
        return self.skip_route or self.force_model is not None

    def key(self, kind: str) -> str:
        """Return the value that keeps a choice sticky: `request`, `session`, `tenant`, or the name of a meta field.

        A key that this request does not carry falls back to the request id, so that the choice is merely not sticky.
        """
        if kind == "session":
            value: Any = self.session
        elif kind == "tenant":
            value = self.tenant
        elif kind == "request":
            value = self.id
        else:
            value = self.meta.get(kind)
        return self.id if value is None or value == "" else str(value)


def text_of(data: Any) -> str:
    """Return the text in `data`: the string itself, a mapping's `text` field, or an empty string."""
    if isinstance(data, str):
        return data
    if isinstance(data, Mapping):
        text = data.get("text")
        return text if isinstance(text, str) else ""
    return ""
