"""The batched model asked through the library, without HTTP: `python -m bench.batching_library CONFIG CLIENTS SECONDS`.

So many clients in the process each ask one text after the other; prints requests a second, P50 and P99 in milliseconds.
"""

from __future__ import annotations

import asyncio
import sys
import time

import uvloop

from rheostat.router import Router


async def driven(config: str, clients: int, seconds: float) -> tuple[float, float, float]:
    """Return requests a second, P50 and P99 in milliseconds; the first second is not counted."""
    router = await Router.open(config)
    times: list[float] = []
    began = time.perf_counter() + 1.0
    until = began + seconds

    async def client(number: int) -> None:
        while (sent := time.perf_counter()) < until:
            await router.apredict(f"#{number} the film was a delight")
            if sent >= began:
                times.append(time.perf_counter() - sent)

    await asyncio.gather(*[client(number) for number in range(clients)])
    await router.aclose()
    times.sort()
    return len(times) / seconds, times[len(times) // 2] * 1e3, times[len(times) * 99 // 100] * 1e3


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(*runner.run(driven(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))))
