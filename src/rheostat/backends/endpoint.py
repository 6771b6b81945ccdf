"""Where an OpenAI-compatible server is and how it is spoken to: what every model behind one may say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rheostat.backends.upstream import StatusKind, Upstream
from rheostat.pool.backend import ModelSettings
from rheostat.types.duration import Duration


class EndpointSettings(ModelSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`model` at `base_url` (`.../v1`), asked with `api_key`.

    `extra_body` is added to every request. After a 429 or 5xx with Retry-After the model is left alone for that time, at
    most `max_retry_after`. `on_status` says what a status means, by its kind of failure, where the usual table does not fit.
    """

    base_url: str
    model: str
    api_key: str = ""
    extra_body: Mapping[str, Any] = {}
    max_retry_after: Duration = Duration(60.0)
    on_status: Mapping[int, StatusKind] = {}

    @property
    def rows_together(self) -> bool:
        """False: a call carries one row."""
        return False

    @property
    def check_url(self) -> str:
        """The list of models, which costs nothing."""
        return with_path(self.base_url, "/models")

    def upstream(self) -> Upstream:
        """Return the page that answers chats; nothing is sent yet.

        Raises:
            ConfigError: the URL is none.
        """
        headers = {"authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        url = with_path(self.base_url, "/chat/completions")
        return Upstream(
            url, headers, self.max_retry_after, "base_url", on_status=self.on_status, resend=not self.side_effects
        )


def with_path(base_url: str, path: str) -> str:
    """Return the URL with `path` added before its query."""
    front, mark, query = base_url.partition("?")
    return front.rstrip("/") + path + mark + query
