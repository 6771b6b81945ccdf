"""What the config says about answers that come later."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from rheostat.types.duration import Duration

AtLeastOne = Annotated[int, Meta(ge=1)]


class WebhookSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where finished results are posted: `url`, yours, never a client's. Each post carries `header` with
    `sha256=` and the HMAC-SHA256 (hex) of the body under `secret`. No redirect is followed. What is not answered with
    2xx within `timeout` is posted again, with growing pauses, until `results.keep` is over."""

    url: str
    secret: str
    header: str = "x-rheostat-signature"
    timeout: Duration = Duration(5.0)

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")) or "#" in self.url:
            raise ValueError("`url` must be http://host/... or https://host/...")
        if len(self.secret) < 16:
            raise ValueError("`secret` needs at least 16 characters; `openssl rand -hex 16` makes one")
        if not self.header or not all(c.isascii() and (c.isalnum() or c == "-") for c in self.header):
            raise ValueError("`header` must be a header's name: letters, digits and `-`")
        if not self.timeout > 0.0:
            raise ValueError("`timeout` must be more than 0")

    def __repr__(self) -> str:
        return f"WebhookSettings(url=***, secret=***, header={self.header!r}, timeout={self.timeout:g})"


class ResultSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Answers that come later, for the routes that promise them (`fallback.later`).

    Requests to be completed wait in the SQLite file `path`, at most `pending` of them, each at most `keep`;
    `workers` are asked again at a time. Results can be fetched for `keep` after they came. `webhook` posts them, too.
    """

    path: str | None = None
    pending: AtLeastOne = 10_000
    keep: Duration = Duration(86_400.0)
    workers: AtLeastOne = 4
    webhook: WebhookSettings | None = None

    def __post_init__(self) -> None:
        if not self.keep > 0.0:
            raise ValueError("`keep` must be more than 0")
        if self.webhook is not None and self.path is None:
            raise ValueError("`webhook` has nothing to post without `path`, the file in which results are kept")
