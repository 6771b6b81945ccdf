"""What the layer that keeps the service up costs a request when nothing fails: processor time, medians of alternating runs.

    python -m bench.overhead [--requests N]

One model that answers at once is asked directly, through the executor (places, breaker, retry budget, deadline, the contract
on its answer), and through the whole engine, with the ladder on and off. The difference is the layer's.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable
from statistics import median
from typing import cast

from rheostat.clock import SystemClock
from rheostat.engine.engine import Engine, Lane, Plan
from rheostat.engine.execute import Executor
from rheostat.engine.journey import Route
from rheostat.policies import parse_policy
from rheostat.pool import Model, ModelSettings, Pool, RemoteBackend
from rheostat.resilience.breaker import BreakerSettings
from rheostat.resilience.holds import Holds
from rheostat.resilience.ladder import FallbackSettings
from rheostat.testing import Act, Scripted
from rheostat.types import Prediction, Request

RUNS = 9
OFF = BreakerSettings(failure_threshold=0, error_rate=1.0)
NO_LADDER = FallbackSettings(retry=0, peer=False, lighter=False)


def model(name: str, breaker: BreakerSettings | None) -> Model:
    return Model(
        name, ModelSettings(breaker=breaker, peers=("b",) if name == "a" else ()), Scripted(Act(Prediction("x", 1.0)))
    )


def plan(fallback: FallbackSettings, breaker: BreakerSettings | None) -> Plan:
    models = {name: model(name, breaker) for name in ("a", "b")}
    links = {name: each.link() for name, each in models.items()}
    route = Route(policy=parse_policy("a"), fallback=fallback, links=links, default="a")
    return Plan(version="v", lanes={"default": Lane(name="default", route=route)}, pool=Pool(models))


async def measured(requests: int) -> dict[str, float]:
    clock = SystemClock()
    executor, engine = Executor(clock), Engine(clock, Holds())
    asked = model("a", None)
    backend = cast("RemoteBackend", asked.backend)
    now = clock.monotonic()
    request = Request(id="r", data="x", received=now, deadline=now + 3600.0)
    on, off = plan(FallbackSettings(), None), plan(NO_LADDER, OFF)
    ways: dict[str, Callable[[], Awaitable[object]]] = {
        "the model itself": lambda: backend.apredict(("x",), 10.0),
        "executor": lambda: executor.run(asked, request, 2, 10.0),
        "engine, ladder and breaker off": lambda: engine.serve(off, request),
        "engine, ladder and breaker on": lambda: engine.serve(on, request),
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(RUNS):
        for name, ask in ways.items():
            began = time.process_time()
            for _ in range(requests):
                await ask()
            found[name].append((time.process_time() - began) / requests * 1e6)
    return {name: median(times) for name, times in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--requests", type=int, default=5_000, help="a run (default 5000)")
    times = asyncio.run(measured(parser.parse_args().requests))
    for name, each in times.items():
        print(f"{name:<32} {each:6.2f} us cpu")
    layer = times["executor"] - times["the model itself"]
    print(f"the layer around one call        {layer:6.2f} us cpu (executor - the model itself)")
    ladder = times["engine, ladder and breaker on"] - times["engine, ladder and breaker off"]
    print(f"ladder and breaker in the engine {ladder:6.2f} us cpu (on - off)")


if __name__ == "__main__":
    main()
