"""The operator's pages, on a port of their own. Nothing is served without the secret, whatever the path or method."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from hmac import compare_digest
from typing import TYPE_CHECKING, Any

import msgspec

from rheostat.errors import NotFound, RheostatError, Unauthorized
from rheostat.gateway.admin_alerts import ALERTS, AlertPages
from rheostat.gateway.admin_explain import EXPLAIN, explain_page
from rheostat.gateway.admin_models import MODELS, ModelPages
from rheostat.gateway.admin_sessions import SESSIONS, SessionPages
from rheostat.gateway.admin_versions import ROLLBACK, VERSIONS, VersionPages
from rheostat.gateway.answer import Send, encoded, send_error, send_page
from rheostat.gateway.body import Receive
from rheostat.gateway.headers import read_headers, request_id
from rheostat.gateway.keys import bearer

if TYPE_CHECKING:
    from rheostat.config.schema import Config
    from rheostat.router import Router

MIN_SECRET = 16
"""Characters that an admin secret must have at least."""
_RECORDS = "/admin/records/"
_SECRET_NAMES = ("key", "secret", "password", "token", "authorization", "credential")
_log = logging.getLogger("rheostat.gateway")


def is_open(config: Config) -> bool:
    """Return True when the config opens the admin port: its secret has at least 16 characters."""
    return config.admin.secret is not None and len(config.admin.secret) >= MIN_SECRET


class AdminApp:
    """The admin pages of a router as an ASGI application.

    Raises:
        ValueError: the config has no admin secret of at least 16 characters.
    """

    def __init__(self, router: Router) -> None:
        secret = router.config.admin.secret
        if secret is None or not is_open(router.config):
            raise ValueError(f"the admin pages need admin.secret with at least {MIN_SECRET} characters")
        self._router = router
        self._digest = sha256(secret.encode()).digest()
        self._models = ModelPages(router)
        self._alerts = AlertPages(router)
        self._sessions = SessionPages(router)
        self._versions = VersionPages(router)
        self._pages: Mapping[tuple[str, str], Callable[[], Awaitable[Any]]] = {
            ("GET", "/admin/status"): self._status,
            ("GET", "/admin/config"): self._config,
            ("POST", "/admin/reload"): self._reload,
        }

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one ASGI connection."""
        if scope["type"] != "http":
            raise RuntimeError(f"the admin pages speak http only, not {scope['type']}")
        known_id = ""
        try:
            found = read_headers(scope["headers"])
            known_id = request_id(found)
            token = bearer(found.get(b"authorization"))
            if token is None or not compare_digest(sha256(token).digest(), self._digest):
                raise Unauthorized("these pages need `authorization: Bearer SECRET`", "authorization")
            method, path = scope["method"], scope["path"]
            if path == SESSIONS or path.startswith(f"{SESSIONS}/"):
                status, answer = await self._sessions.page(method, scope["raw_path"].partition(b"?")[0].decode("ascii"))
            elif path.startswith(EXPLAIN):
                raw_path = scope["raw_path"].partition(b"?")[0].decode("ascii")
                status, answer = await asyncio.to_thread(explain_page, self._router, method, raw_path)
            elif path in (ROLLBACK, VERSIONS) or path.startswith(f"{VERSIONS}/"):
                status, answer = await self._versions.page(method, path, found, receive)
            else:
                status, answer = await self._page(method, path)
            headers = [(b"x-rheostat-request-id", known_id.encode())]
            await send_page(send, status, encoded(answer), b"application/json", headers)
        except RheostatError as error:
            await send_error(send, error, known_id)
        except Exception as error:
            _log.exception("admin request %s failed inside", known_id)
            await send_error(send, error, known_id)

    async def _page(self, method: str, path: str) -> tuple[int, Any]:
        page = self._pages.get(("GET" if method == "HEAD" else method, path))
        if page is not None:
            answer = await page()
            refused = path == "/admin/reload" and not answer["reloaded"]
            return (422 if refused else 200), answer
        if method in ("GET", "HEAD") and path.startswith(_RECORDS):
            return 200, await asyncio.to_thread(self._router.record, path[len(_RECORDS) :])
        if path == MODELS or path.startswith(f"{MODELS}/"):
            return await self._models.page(method, path)
        if path == ALERTS or path.startswith(f"{ALERTS}/"):
            return await asyncio.to_thread(self._alerts.page, method, path)
        raise NotFound("there is no such admin page for this method")

    async def _status(self) -> Any:
        return self._router.status()

    async def _config(self) -> Any:
        return shown_config(self._router.config, self._router.masker.mask)

    async def _reload(self) -> dict[str, Any]:
        done = await self._router.reload()
        status = self._router.status()
        return {"reloaded": done, "config_version": status["config_version"], "error": status["last_error"]}


def shown_config(config: Config, mask: Callable[[str], str]) -> Any:
    """Return what runs as plain data, without secrets: fields named like one are replaced by a fingerprint, and `mask`
    goes over every other text."""
    return _shown(msgspec.to_builtins(config, enc_hook=str, str_keys=True), "", mask)


def _shown(value: Any, name: str, mask: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {key: _shown(item, key, mask) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(item, name, mask) for item in value]
    if isinstance(value, str):
        if value and any(part in name.lower() for part in _SECRET_NAMES):
            return f"(secret, sha256 {sha256(value.encode()).hexdigest()[:8]})"
        return mask(value)
    return value
