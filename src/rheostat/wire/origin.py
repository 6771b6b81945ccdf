"""Where a server is, and the lines that every request to it begins with."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from urllib.parse import quote, urlsplit

from msgspec import Struct

_PORTS = {"http": 80, "https": 443}
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_SAFE = "!#$%&'()*+,/:;=?@[]~"


class Origin(Struct, frozen=True):
    """Scheme, host and port of a server."""

    scheme: str
    host: str
    port: int

    @classmethod
    def of(cls, url: str) -> Origin:
        """Read it from a URL.

        Raises:
            ValueError: it is no http or https URL, or its host or port is none.
        """
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or not parts.hostname:
            raise ValueError("not an http or https URL")
        host = parts.hostname
        if not host.isascii():
            host = host.encode("idna").decode()
        return cls(parts.scheme, host, _PORTS[parts.scheme] if parts.port is None else parts.port)

    @property
    def named(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def tls(self) -> ssl.SSLContext | None:
        """Return what verifies certificates against the system's authorities; None for http."""
        return ssl.create_default_context() if self.scheme == "https" else None


def head_of(method: str, url: str, headers: Mapping[str, str]) -> bytes:
    """Return the first lines of a request, without the empty line: more headers may follow.

    Raises:
        ValueError: a header's name or value would break the message.
    """
    parts = urlsplit(url)
    target = quote(parts.path or "/", safe=_SAFE) + (f"?{quote(parts.query, safe=_SAFE)}" if parts.query else "")
    lines = [f"{method} {target} HTTP/1.1", f"host: {Origin.of(url).named}", "user-agent: rheostat"]
    given = {"accept": "*/*", "accept-encoding": "identity", **headers}
    for name, value in given.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} cannot be the name of a header")
        if any(sign in value for sign in "\r\n\0"):
            raise ValueError(f"the value of the header {name!r} has a line break in it")
        lines.append(f"{name}: {value}")
    return "".join(f"{line}\r\n" for line in lines).encode()
