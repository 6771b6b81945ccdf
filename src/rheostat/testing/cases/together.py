"""The model of a case with `batch`: a scripted upstream that gets all rows of a batch in one call."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rheostat.backends.upstream import Upstream, encode
from rheostat.errors import ModelError

_LONG_S = 60.0


class Together:
    """Posts `{"rows": [...]}` to `url` and reads `{"answers": [...]}`; what comes back is left to the backend to judge."""

    def __init__(self, url: str) -> None:
        self._upstream = Upstream(url, {}, _LONG_S, "url")

    async def __call__(self, rows: Sequence[Any]) -> Any:
        reply = await self._upstream.ask(encode({"rows": list(rows)}), _LONG_S)
        if not isinstance(reply, dict) or "answers" not in reply:
            raise ModelError("bad_output", f"expected answers, got {json.dumps(reply)[:200]}")
        return reply["answers"]

    async def aclose(self) -> None:
        """Close the connections."""
        await self._upstream.aclose()
