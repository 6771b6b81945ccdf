"""A router over scripted model servers, for the tests of routing cases."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from rheostat.engine.engine import Served
from rheostat.router import Router
from rheostat.testing import FaultyUpstream
from rheostat.testing.step import Step

Scripts = Mapping[str, Sequence[Step]]
NO_LADDER = {"retry": 0, "peer": False, "lighter": False}


class Routed:
    """The router, its model servers by name, and its log."""

    def __init__(self, router: Router, up: Mapping[str, FaultyUpstream], folder: Path, config: dict[str, Any]) -> None:
        self.router, self.up, self.folder, self.config = router, up, folder, config

    async def ask(self, text: str = "hello", **options: Any) -> Served:
        return await self.router.serve(self.router.request(text, **options))

    def calls(self, name: str) -> int:
        return len(self.up[name].calls)

    def metric(self, name: str) -> str:
        """The lines of one metric."""
        page = self.router.metrics.render().decode()
        return "\n".join(line for line in page.splitlines() if line.startswith(name))

    def rewrite(self) -> None:
        """Write `config` as it is now."""
        write(self.folder, self.config)


def write(folder: Path, config: Mapping[str, Any]) -> str:
    path = folder / "rheostat.yaml"
    path.write_text(yaml.safe_dump(config, allow_unicode=True, sort_keys=False))
    return str(path)


def log(folder: Path) -> list[dict[str, Any]]:
    """The records in the route log, read as strict JSON."""

    def refuse(word: str) -> float:
        raise ValueError(f"{word} is no JSON")

    lines = (folder / "records.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line, parse_constant=refuse)["rheostat"]["record"] for line in lines]


@contextlib.asynccontextmanager
async def routed(
    folder: Path,
    policy: Any,
    scripts: Scripts,
    *,
    models: Mapping[str, Mapping[str, Any]] | None = None,
    fallback: Mapping[str, Any] | None = None,
    **sections: Any,
) -> AsyncIterator[Routed]:
    """Serve one route over a server for each of `scripts`; `models` adds settings to some, `sections` to the config."""
    async with contextlib.AsyncExitStack() as stack:
        up = {name: await stack.enter_async_context(FaultyUpstream(*steps)) for name, steps in scripts.items()}
        config: dict[str, Any] = {
            "models": {
                name: {"backend": "http", "url": f"{server.url}/predict", **(models or {}).get(name, {})}
                for name, server in up.items()
            },
            "routes": {"default": {"policy": policy, "deadline": "10s", "fallback": dict(fallback or {"retry": 0})}},
            "records": {"jsonl": "records.jsonl"},
            **sections,
        }
        router = await Router.open(write(folder, config))
        try:
            yield Routed(router, up, folder, config)
        finally:
            await router.aclose()
