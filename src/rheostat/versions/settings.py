"""What the config says about keeping its versions."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct


class VersionSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where every config that served is kept, with its policy files: the SQLite file `path`, which all gateways of this
    config share. `rheostat versions` lists them, `rheostat rollback` serves one again. The last `keep` versions are kept."""

    path: str
    keep: Annotated[int, Meta(ge=2, le=10_000)] = 500

    def __post_init__(self) -> None:
        if not self.path:
            raise ValueError("`path` must name a file, such as versions.sqlite")
