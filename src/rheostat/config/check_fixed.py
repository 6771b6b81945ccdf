"""What is bound at start cannot change by a reload: saying so beats ignoring it."""

from __future__ import annotations

from rheostat.config.load import Loaded
from rheostat.errors import ConfigError, Problem

_FIXED = ("records", "admin", "holds", "cache", "sessions", "results", "memory", "watch", "versions")
_FIXED_OF_SERVER = ("host", "port", "grpc_port")


def check_fixed(loaded: Loaded, before: Loaded) -> None:
    """Hold a config that is to be taken up against the one that is served.

    Raises:
        ConfigError: something differs that cannot change while serving.
    """
    now, then = loaded.config, before.config
    changed = [name for name in _FIXED if getattr(now, name) != getattr(then, name)]
    changed += [f"server.{name}" for name in _FIXED_OF_SERVER if getattr(now.server, name) != getattr(then.server, name)]
    if changed:
        told = "cannot change while serving; restart the gateway to change it"
        raise ConfigError([Problem(name, loaded.lines.get(name), told) for name in changed], loaded.path)
