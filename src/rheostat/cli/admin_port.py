"""Asking the admin port of a running gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rheostat.config.schema import AdminSettings

TIMEOUT_S = 120.0
"""A load takes as long as it takes, and waits for others before it."""
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # what a server listens on is no address to call


def address(settings: AdminSettings) -> str:
    """Return the URL of the admin port."""
    if not settings.port:
        raise typer.BadParameter("the config says `admin.port: 0`, any free port: name the gateway's with --admin")
    host = _ANYWHERE.get(settings.host, settings.host)
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"


def asked(method: str, url: str, settings: AdminSettings, body: Any = None) -> Any:
    """Ask the admin port; `body` goes along as JSON.

    Raises:
        NotFound, Unauthorized: it said so.
        RheostatError: it cannot be reached, or did not do it.
    """
    from urllib.error import HTTPError, URLError
    from urllib.request import ProxyHandler, Request, build_opener

    import msgspec

    from rheostat.errors import RheostatError

    if settings.secret is None:
        raise RheostatError("the config has no `admin.secret`, so its gateway has no admin port")
    headers = {"authorization": f"Bearer {settings.secret}"}
    if body is not None:
        headers["content-type"] = "application/json"
    request = Request(url, None if body is None else msgspec.json.encode(body), headers, method=method)
    try:
        with build_opener(ProxyHandler({})).open(request, timeout=TIMEOUT_S) as answer:
            return msgspec.json.decode(answer.read())
    except HTTPError as error:
        raise RheostatError(_told(error.code, error.read())) from None
    except (URLError, TimeoutError, ConnectionError) as error:
        why = error.reason if isinstance(error, URLError) else error
        raise RheostatError(f"no gateway answers at {url.partition('/admin')[0]}: {why}; is it running?") from None


def _told(status: int, body: bytes) -> str:
    import msgspec

    try:
        error = msgspec.json.decode(body)["error"]
        said = error["message"] if isinstance(error, dict) else str(error)
    except (msgspec.DecodeError, KeyError, TypeError):
        said = f"status {status}"
    return f"{said} (is the secret of this config the gateway's?)" if status == 401 else said
