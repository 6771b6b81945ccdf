"""Where the time of a request goes inside the gateway, without sockets: `python -m bench.gateway_parts`.

The config of `bench.gateway` without records, driven from inside one process and thread. Each line is one part with all that
it calls, CPU microseconds, the median of nine runs of 10,000; a line less the lines it contains is what it takes itself.
"""

from __future__ import annotations

import asyncio
import gc
import json
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any, TypeVar

from bench.gateway import CONFIG
from bench.gateway_load import body_of
from rheostat.engine.engine import Served
from rheostat.engine.journey import Journey
from rheostat.gateway.leave import at_once
from rheostat.gateway.predict import PredictApi
from rheostat.gateway.server import GC_THRESHOLDS
from rheostat.router import Router
from rheostat.types import Context, Request

RUNS, CALLS = 9, 10_000
T = TypeVar("T")


def measured(name: str, ask: Callable[[T], object], given: list[T]) -> None:
    """Print what one call takes."""
    found = []
    for _ in range(RUNS):
        turn: Iterator[T] = cycle(given)
        began = time.thread_time()
        for _ in range(CALLS):
            ask(next(turn))
        found.append((time.thread_time() - began) / CALLS * 1e6)
    print(f"{name:<58} {statistics.median(found):6.1f}")


async def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="rheostat-parts-") as place:
        path = Path(place) / "rheostat.yaml"
        path.write_text(re.sub("^records:.*", "", CONFIG, flags=re.MULTILINE))
        router = await Router.open(str(path))
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    bodies = [body_of(number) for number in range(64)]
    head = [(b"host", b"127.0.0.1:8000"), (b"content-type", b"application/json"), (b"content-length", b"100")]
    api, engine, plan = PredictApi(router), router.engine, router.plan
    lane, fast = plan.lanes["default"], plan.pool.models["fast"]

    rows = [json.loads(body) for body in bodies]

    def request(row: dict[str, Any]) -> Request:
        return router.request(row["data"], meta=row["meta"])

    def served(row: dict[str, Any]) -> Served:
        return at_once(router.serve(request(row)))

    def journey(asked: Request) -> None:
        going = Journey(lane.route, Context(asked, {}, plan.pool.view(asked.received)))
        fresh = going.start(0.0)
        while going.ending is None:
            fresh = going.arrived(engine.executor.run_now(plan.pool.models[fresh[0]], asked, going.tries(fresh[0])), 0.0)

    requests = [request(row) for row in rows]
    measured("prediction: from headers and body to the page", lambda body: api.begin(head, body), bodies)
    measured("  served: from the row to its record", served, rows)
    measured("    journey: policy, calls of models, the ending", journey, requests)
    measured("      one call of a model (1.25 a request)", lambda asked: engine.executor.run_now(fast, asked, 1), requests)
    done = [served(row) for row in rows]
    measured("    counted: metrics of a record", lambda each: router.metrics.observe(each.record), done)
    measured("  page: body and headers of an answer", api.page, done)
    await router.aclose()


if __name__ == "__main__":
    asyncio.run(main())
