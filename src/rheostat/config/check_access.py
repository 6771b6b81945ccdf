"""Who may come in, and where: keys, the admin secret, hosts and ports."""

from __future__ import annotations

from rheostat.config.draft import Draft
from rheostat.config.schema import AdminSettings, KeySettings, ServerSettings

SECRET_LENGTH = 16
"""The fewest characters of an admin secret; a client's key that is shorter is warned about."""
_LOCAL = ("127.0.0.1", "localhost", "::1")


def check_access(draft: Draft) -> None:
    """Check keys, secret, hosts and ports."""
    keys: dict[int, KeySettings] = {}
    for index in range(len(draft.decoder.lines)):
        if f"keys[{index}]" not in draft.decoder.lines:
            break
        key = draft.decoder.decoded.get(f"keys[{index}]")
        if key is not None:
            keys[index] = key
    _keys(draft, keys)
    admin = draft.decoder.decoded.get("admin", AdminSettings())
    if admin.secret is not None:
        if len(admin.secret) < SECRET_LENGTH:
            message = f"has {len(admin.secret)} characters, needs at least {SECRET_LENGTH}"
            draft.wrong("admin.secret", f"{message}; `openssl rand -hex 16` makes one")
        for index, key in keys.items():
            if key.key == admin.secret:
                draft.wrong(f"keys[{index}].key", "a client's key must not be the admin secret")
    server = draft.decoder.decoded.get("server", ServerSettings())
    if admin.secret is not None and server.port == admin.port != 0:
        draft.wrong("admin.port", f"the gateway listens on {server.port} too; choose another port")
    if server.grpc_port and server.grpc_port in (server.port, admin.port if admin.secret is not None else 0):
        draft.wrong("server.grpc_port", f"something else listens on {server.grpc_port} too; choose another port")
    if server.host not in _LOCAL and "keys" not in draft.sections:
        draft.doubtful("server.host", f"anybody who reaches {server.host} may use the models, as there are no `keys`")


def _keys(draft: Draft, keys: dict[int, KeySettings]) -> None:
    seen: dict[str, int] = {}
    tenants: dict[str, tuple[int, int]] = {}
    for index, settings in keys.items():
        path = f"keys[{index}]"
        if settings.key is None:  # wrong, which was said already
            continue
        if not settings.key.strip():
            draft.wrong(f"{path}.key", "must not be empty")
        elif len(settings.key) < SECRET_LENGTH:
            draft.doubtful(f"{path}.key", f"is short; {SECRET_LENGTH} characters or more are hard to guess")
        if settings.key in seen:
            draft.wrong(f"{path}.key", f"the same key as keys[{seen[settings.key]}]")
        seen.setdefault(settings.key, index)
        if settings.max_in_flight and settings.tenant is None:
            draft.wrong(f"{path}.max_in_flight", "is the limit of a tenant: name the key's `tenant`")
        elif settings.tenant is not None:
            first = tenants.setdefault(settings.tenant, (index, settings.max_in_flight))
            if first[1] != settings.max_in_flight:
                told = f"is {settings.max_in_flight}, but keys[{first[0]}] of the same tenant says {first[1]}"
                draft.wrong(f"{path}.max_in_flight", f"{told}; say the same")
        for number, route in enumerate(settings.routes):
            draft.exists(f"{path}.routes[{number}]", route, draft.routes, "route")
