"""Posts finished results to the operator's own address."""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from rheostat.errors import error_type, http_status
from rheostat.results.result import Result
from rheostat.types.text import well_formed

if TYPE_CHECKING:
    import aiohttp

    from rheostat.results.settings import WebhookSettings

_SLACK_S = 5.0
_log = logging.getLogger("rheostat.results")


class Posted(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of a post. `error_type` and `status` stand there when the promise could not be kept (`state` failed)."""

    id: str
    state: str
    request_id: str
    route: str
    tenant: str | None
    created: float
    finished: float
    attempts: int
    label: str | None = None
    confidence: float | None = None
    scores: Mapping[str, float] | None = None
    output: Any = None
    selected_model: str = ""
    selected_version: str = ""
    level: int = 0
    policy_version: str = ""
    config_version: str = ""
    error_type: str | None = None
    status: int | None = None


class Webhook:
    """Posts to one URL; follows no redirect, shows neither secret nor URL.

    Args:
        mask: removes secrets from error texts.
    """

    def __init__(self, settings: WebhookSettings, *, mask: Callable[[str], str] = str) -> None:
        self._settings = settings
        self._mask = mask
        self._session: aiohttp.ClientSession | None = None
        self.delivered = 0
        self.failed = 0
        self.last_error = ""
        self.longest_s = float(settings.timeout) + _SLACK_S

    async def post(self, result: Result) -> bool:
        """Post a result; True when the other side has taken it (2xx)."""
        import aiohttp

        body = body_of(result)
        headers = {
            "content-type": "application/json",
            "user-agent": "rheostat",
            self._settings.header: signature(self._settings.secret, body),
            "x-rheostat-result": result.id,
        }
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar())
        limit = aiohttp.ClientTimeout(total=float(self._settings.timeout))
        try:
            async with self._session.post(
                self._settings.url, data=body, headers=headers, timeout=limit, allow_redirects=False
            ) as response:
                status = response.status
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            return self._failed(f"{type(error).__name__}")
        if 200 <= status < 300:
            self.delivered += 1
            return True
        return self._failed(f"it answered {status}")

    def status(self) -> dict[str, Any]:
        """Return the numbers for the status page."""
        return {"delivered": self.delivered, "failed": self.failed, "last_error": self.last_error or None}

    async def aclose(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    def _failed(self, why: str) -> bool:
        self.failed += 1
        self.last_error = self._mask(why)
        _log.warning("results: the webhook did not take a result, it is posted again: %s", self.last_error)
        return False


def signature(secret: str, body: bytes) -> str:
    """Return the signature of a body: `sha256=` and the HMAC-SHA256 under the secret in hex (RFC 2104)."""
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def body_of(result: Result) -> bytes:
    """Return the body of the post of a finished result."""
    record, prediction, error = result.record, result.prediction, result.error
    posted = Posted(
        id=result.id, state=result.state, request_id=result.request_id, route=result.route, tenant=result.tenant,
        created=result.created, finished=result.finished, attempts=result.attempts,
        label=well_formed(prediction.label) if prediction is not None else None,
        confidence=prediction.confidence if prediction is not None else None,
        scores=prediction.scores if prediction is not None else None,
        output=prediction.output if prediction is not None else None,
        selected_model=record.selected_model if record is not None else "",
        selected_version=record.selected_version if record is not None else "",
        level=record.level if record is not None else 0,
        policy_version=record.policy_version if record is not None else "",
        config_version=record.config_version if record is not None else "",
        error_type=error_type(error) if error is not None else None,
        status=http_status(error) if error is not None else None,
    )  # fmt: skip
    return msgspec.json.encode(posted, enc_hook=str)
