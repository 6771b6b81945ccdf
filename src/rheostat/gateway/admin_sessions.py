"""The operator's pages about conversations that are kept: which there are, but not what was said; and to delete one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from rheostat.errors import NotFound

if TYPE_CHECKING:
    from rheostat.router import Router

SESSIONS = "/admin/sessions"
MOST = 1_000
"""Sessions that the list has, those used last first."""


class SessionPages:
    """`GET /admin/sessions`, and `DELETE /admin/sessions/NAME` or `/admin/sessions/TENANT/NAME`, percent-encoded."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def page(self, method: str, raw_path: str) -> tuple[int, Any]:
        """Answer one request: the status and what to send.

        Args:
            raw_path: the path as it was sent, still encoded: a name may have a slash in it.

        Raises:
            NotFound: there is no such page or session, or none are kept.
            StoreError: the store cannot be used now.
        """
        conversing = self._router.conversing
        if conversing is None:
            raise NotFound("no conversations are kept: add `session: {}` to a route")
        if raw_path == SESSIONS and method in ("GET", "HEAD"):
            return 200, {"sessions": await conversing.told(MOST), "status": conversing.status()}
        parts = [unquote(part) for part in raw_path.removeprefix(f"{SESSIONS}/").split("/")]
        if method != "DELETE" or len(parts) > 2 or not parts[-1]:
            raise NotFound(f"there is no such admin page for this method; DELETE {SESSIONS}/NAME deletes a session")
        await conversing.forget(parts[-1], parts[0] if len(parts) == 2 else None)
        return 200, {"deleted": True}
