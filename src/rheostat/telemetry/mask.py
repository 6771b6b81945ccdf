"""No secret leaves in any output, in whichever form it was written."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote, quote_plus

SHORTEST: Final = 4
"""Known secrets under this many characters are not looked for: every text would be full of them."""

_SHORTEST_BASE64 = 8
_STRANGERS: Final = re.compile(
    r"(?P<scheme>\b(?:Bearer|Basic)\s+)[A-Za-z0-9+/=._~\-]{6,}"
    r"|(?P<url>://[^/\s:@\"'?#]*:)[^/\s@\"'?#]+(?=@)"
    r"|(?P<name>\b(?:api[-_]?key|x-api-key|access[-_]?token|auth[-_]?token|client[-_]?secret|secret|token|password|passwd"
    r"|authorization)[\"']?\s*(?:=|:|%3D)\s*[\"']?)(?!\[secret)(?:(?:Bearer|Basic)\s+)?[^\s&\"'<>\\,;]{4,}"
    r"|\bsk-[A-Za-z0-9_\-]{8,}",
    re.IGNORECASE,
)
"""What looks like a credential though we do not know it: somebody's wrong key, a key of another service."""


def fingerprint(secret: str) -> str:
    """Return six hexadecimal digits by which a person recognises a secret and nobody can use it."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()[:6]


class Masker:
    """Replaces secrets in text by `[secret <fingerprint>]`, and what merely looks like one by `[secret]`.

    Known secrets are found as written, URL-encoded (once or twice), in JSON, Python or HTML quoting, and inside base64
    at any offset, which covers "Basic" headers. The pattern is replaced as a whole, so that threads need no lock.

    Args:
        secrets: texts of at least four characters; shorter ones are not looked for.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._forms: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None
        self.add(secrets)

    def add(self, secrets: Iterable[str]) -> None:
        """Look for these too, beside those already known (an old key must not show up after a reload either)."""
        forms = dict(self._forms)
        for secret in secrets:
            if len(secret) >= SHORTEST:
                shown = f"[secret {fingerprint(secret)}]"
                for form in _forms(secret):
                    forms.setdefault(form, shown)
        longest_first = sorted(forms, key=len, reverse=True)
        pattern = re.compile("|".join(re.escape(form) for form in longest_first)) if forms else None
        self._forms, self._pattern = forms, pattern

    def mask(self, text: str) -> str:
        """Return `text` without the secrets."""
        if self._pattern is not None:
            forms = self._forms
            text = self._pattern.sub(lambda match: forms[match[0]], text)
        return _STRANGERS.sub(_stranger, text)

    __call__ = mask


def mask_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return `text` without the secrets; for a single text. A `Masker` prepares the search once."""
    return Masker(secrets).mask(text)


def _stranger(match: re.Match[str]) -> str:
    found = match[0]
    kept = match["scheme"] or match["url"] or match["name"] or ""
    # What follows "Bearer" may be what we put there ourselves.
    return found if found[len(kept) :].startswith("[secret") else f"{kept}[secret]"


def _forms(secret: str) -> set[str]:
    """Return every way of writing a secret that occurs in practice."""
    safe = secret.encode("utf-8", "replace").decode()
    written = {secret, quote(safe, safe=""), quote(safe), quote_plus(safe), quote(quote(safe, safe=""), safe="")}
    written |= {re.sub("%[0-9A-F]{2}", lambda match: match[0].lower(), form) for form in tuple(written)}
    written |= {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1]}
    written |= {html.escape(secret), html.escape(secret, quote=False), safe.encode().hex()}
    return {form for form in written if len(form) >= SHORTEST} | _base64_forms(safe.encode())


def _base64_forms(secret: bytes) -> set[str]:
    """Return the part of a base64 text that depends on the secret alone, for each of the three places it can start at."""
    found = set()
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + secret).decode().rstrip("=")
        start = (8 * before + 5) // 6  # the first character made of the secret's bits only
        end = 8 * (before + len(secret)) // 6
        core = encoded[start:end]
        if len(core) >= _SHORTEST_BASE64:
            for form in (core, core.replace("+", "-").replace("/", "_")):
                found |= {form, quote(form, safe="")}
    return found
