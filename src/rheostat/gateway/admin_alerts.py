"""The operator's pages about what is not as usual: what rings, what rang, and to take something for usual."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rheostat.errors import NotFound

if TYPE_CHECKING:
    from rheostat.router import Router
    from rheostat.watch import Watch

ALERTS = "/admin/alerts"
_ACCEPT = "/accept"


class AlertPages:
    """`GET /admin/alerts`, and `POST /admin/alerts/ID/accept`."""

    def __init__(self, router: Router) -> None:
        self._router = router

    def page(self, method: str, path: str) -> tuple[int, Any]:
        """Answer one request: the status and what to send.

        Raises:
            NotFound: there is no such page or alert, or nothing is watched.
        """
        watch = self._router.watch
        if watch is None:
            raise NotFound("nothing is watched: add `watch: {}` to the config")
        if path == ALERTS and method in ("GET", "HEAD"):
            return 200, {"ringing": watch.ringing(), "ended": watch.ended(), "latency": _latency(watch)}
        if method != "POST" or not path.endswith(_ACCEPT):
            raise NotFound(f"there is no such admin page for this method; POST {ALERTS}/ID{_ACCEPT} ends an alert")
        name = path.removeprefix(f"{ALERTS}/").removesuffix(_ACCEPT)
        alert = watch.accept(name)
        if alert is None:
            raise NotFound(f"no alert {name[:80]!r} rings now", "id")
        return 200, {"alert": alert}


def _latency(watch: Watch) -> list[dict[str, Any]]:
    """Return the sliding percentiles as rows; a window without traffic has none, and says so by null."""
    return [
        {"what": what, "name": name, "count": each.count, "p50_s": each.p50, "p95_s": each.p95, "p99_s": each.p99}
        for (what, name), each in sorted(watch.percentiles().items())
    ]
