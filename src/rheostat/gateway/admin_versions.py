"""The operator's pages about versions of the config: which served, how they differ, and to go back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from rheostat.config.difference import difference
from rheostat.errors import BadRequest, ConfigError, NotFound
from rheostat.gateway.body import Receive, read_body
from rheostat.gateway.headers import check_body_headers

if TYPE_CHECKING:
    from rheostat.router import Router
    from rheostat.versioning import Versioning

VERSIONS, ROLLBACK = "/admin/versions", "/admin/rollback"
MOST = 500
"""Changes that the list has, the last first."""
_MAX_BODY = 4_096


class RollbackBody(Struct, frozen=True, forbid_unknown_fields=True):
    """What to go back to: `version` (or the beginning of its name, or `file`; default: the last good one), all of it or one
    `model`; `who` does it, and `why`."""

    version: str | None = None
    model: str | None = None
    who: str = ""
    why: str = ""


class VersionPages:
    """`GET /admin/versions`, `GET /admin/versions/A/diff/B`, `POST /admin/rollback`."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def page(self, method: str, path: str, found: Mapping[bytes, bytes], receive: Receive) -> tuple[int, Any]:
        """Answer one request: the status and what to send.

        Raises:
            NotFound: there is no such page, version or model, or no versions are kept.
            BadRequest: the body is not a `RollbackBody`.
            StoreError: the versions cannot be read or written now.
        """
        versioning = self._router.versioning
        if versioning is None:
            raise NotFound("no versions are kept: add `versions: {path: versions.sqlite}` to the config")
        if path == ROLLBACK and method == "POST":
            return await self._back(versioning, found, receive)
        parts = path.removeprefix(VERSIONS).split("/")
        if method in ("GET", "HEAD") and path == VERSIONS:
            changes = msgspec.to_builtins(await versioning.store.changes(MOST))
            return 200, {"serving": self._router.plan.version, **versioning.status(), "changes": changes}
        if method in ("GET", "HEAD") and len(parts) == 4 and parts[2] == "diff":
            before, after = await versioning.store.version(parts[1]), await versioning.store.version(parts[3])
            names = (before.version, after.version)
            return 200, {"diff": difference(before.sources, after.sources, names, self._router.masker.mask)}
        raise NotFound("there is no such admin page for this method")

    async def _back(self, versioning: Versioning, found: Mapping[bytes, bytes], receive: Receive) -> tuple[int, Any]:
        body = b""
        if found.get(b"content-length", b"0") != b"0" or b"content-type" in found:
            check_body_headers(found, _MAX_BODY)
            body = await read_body(receive, _MAX_BODY) or b""
        try:
            asked = msgspec.json.decode(body, type=RollbackBody) if body else RollbackBody()
        except msgspec.DecodeError as error:
            raise BadRequest(f"the body may have version, model, who and why, all texts: {error}") from None
        try:
            done = await versioning.go_back(asked.version or None, asked.model or None, asked.who[:200], asked.why[:1000])
        except ConfigError as error:
            return 422, {"rolled_back": False, "error": self._router.masker.mask(str(error))}
        return 200, {"rolled_back": True, **msgspec.to_builtins(done)}
