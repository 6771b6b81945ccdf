"""A plain HTTP model server that takes its time: `python -m bench.outage_server PORT SLEEP_FILE PLACES`.

It says whether a text's length is even or odd, after the seconds that SLEEP_FILE holds when the work begins; PLACES requests
are worked on at a time, the others wait in line. Work goes on when its caller has left, as it does in most model servers.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from aiohttp import web


class Server:
    """The handlers."""

    def __init__(self, sleep: Path, places: int) -> None:
        self._sleep = sleep
        self._places = asyncio.Semaphore(places)

    async def predict(self, request: web.Request) -> web.Response:
        """Answer one text."""
        text = (await request.json())["data"]
        async with self._places:
            await asyncio.sleep(float(self._sleep.read_text() or 0.0))
        label = "even" if len(text) % 2 == 0 else "odd"
        return web.json_response({"label": label, "confidence": 0.95})

    async def health(self, _: web.Request) -> web.Response:
        """Answer at once, however long the line is."""
        return web.Response()


def main() -> None:
    """Serve until killed."""
    import uvloop

    port, sleep, places = sys.argv[1:]
    server = Server(Path(sleep), int(places))
    app = web.Application()
    app.router.add_post("/predict", server.predict)
    app.router.add_get("/health", server.health)
    web.run_app(app, host="127.0.0.1", port=int(port), print=None, access_log=None, loop=uvloop.new_event_loop())


if __name__ == "__main__":
    main()
