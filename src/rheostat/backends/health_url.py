"""A health check by URL, for a model of any kind."""

from __future__ import annotations

from urllib.parse import urlsplit

from rheostat.backends.upstream import Upstream
from rheostat.pool.backend import Checkable, ModelSettings

_PORTS = {"http": 80, "https": 443}


class UrlCheck:
    """Fetches one URL; any 2xx status is good."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream

    async def acheck(self, timeout_s: float) -> None:
        """Return when the URL answers well within `timeout_s` seconds.

        Raises:
            ModelError: it does not.
        """
        await self._upstream.check(timeout_s)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._upstream.aclose()


def check_of(settings: ModelSettings, backend: object) -> Checkable | None:
    """Return how a model's health is asked for: by its `health.url`, by the backend itself, or by the URL that its kind
    offers; None when only its `probe` is left.

    Raises:
        ConfigError: the URL is none.
    """
    if not settings.health.url and isinstance(backend, Checkable):
        return backend
    url = settings.health.url or settings.check_url
    if not url:
        return None
    headers: dict[str, str] = {}
    if _origin(url) == _origin(getattr(settings, "base_url", "") or getattr(settings, "url", "")):  # else a key would leak
        headers.update(getattr(settings, "headers", {}))
        if key := getattr(settings, "api_key", ""):
            headers["authorization"] = f"Bearer {key}"
    return UrlCheck(Upstream(url, headers, 0.0, "health.url"))


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)
