"""Models, what speaks to them, and the pool they form."""

from rheostat.pool.backend import Backend, Checkable, ModelSettings, RemoteBackend, Reply, Row, Switchable
from rheostat.pool.model import Model
from rheostat.pool.pool import Pool

__all__ = ["Backend", "Checkable", "Model", "ModelSettings", "Pool", "RemoteBackend", "Reply", "Row", "Switchable"]
