"""What a policy looks at besides a request's data: what makes two requests different questions, and what no table holds."""

from __future__ import annotations

from msgspec import Struct

from rheostat.policies.balance import Balance
from rheostat.policies.base import Policy, live_of, walk
from rheostat.policies.rules import Rules


class Reads(Struct, frozen=True):
    """Names of the meta fields and headers that are read (None: any of them may be), and whether the session is."""

    meta: tuple[str, ...] | None = ()
    headers: tuple[str, ...] | None = ()
    session: bool = False


EVERYTHING = Reads(None, None, True)


def without_load(policy: Policy) -> str:
    """Say what a replay of the policy over an outcomes table cannot show; nothing, when it reads no live load."""
    read = live_of(policy)
    if not read:
        return ""
    return (
        f"it reads live load ({', '.join(read)}), of which an outcomes table has none: there every model looks idle, so "
        "what is replayed is not what is served"
    )


def reads_of(policy: Policy) -> Reads:
    """Return what `policy` and its nested policies may read; everything, for a policy that does not come with the package.

    What only keeps a choice sticky by hysteresis does not count: it moves with time, not with the request.
    """
    meta: dict[str, None] = {}
    headers: dict[str, None] = {}
    whole: set[str] = set()
    session = False
    for part in walk(policy):
        if not type(part).__module__.startswith("rheostat."):
            return EVERYTHING
        if isinstance(part, Rules):
            for root, fields in part.__dict__["roots"]:
                session |= root == "session"
                names = {"meta": meta, "headers": headers}.get(root)
                if names is not None and fields is None:
                    whole.add(root)
                elif names is not None and fields is not None:
                    names.update(dict.fromkeys(fields))
        key = getattr(part, "key", None)
        if isinstance(key, str) and not hasattr(part, "hysteresis"):
            session |= key == "session"
            if key not in ("session", "tenant", "request"):
                meta[key] = None
        if isinstance(part, Balance) and part.tags is not None:  # what only spreads the load does not make a question
            meta[part.tags] = headers[part.tags.lower()] = None
        segment = getattr(part, "segment", None)
        if isinstance(segment, str):
            meta[segment] = None
    return Reads(
        None if "meta" in whole else tuple(sorted(meta)), None if "headers" in whole else tuple(sorted(headers)), session
    )
