"""Requests at a fixed rate, whatever comes back: latency counts from when a request was due, so that no wait is left out."""

from __future__ import annotations

import asyncio
import re
import urllib.request
from typing import Any, NamedTuple

import aiohttp

_GAUGE = re.compile(r'^rheostat_(breaker_state|ramp)\{model="(\w+)"\} ([\d.e+-]+)$', re.MULTILINE)


class Sample(NamedTuple):
    """One request: when it was due, how long its answer took (seconds), who gave it; `right`: it is 200 and true."""

    due: float
    latency: float
    model: str
    level: int
    right: bool
    said: str = ""


async def load(url: str, rate: float, seconds: float) -> list[Sample]:
    """Send `rate` requests a second for `seconds` and return every one of them."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session, asyncio.TaskGroup() as group:
        tasks = []
        for number in range(int(rate * seconds)):
            due = number / rate
            await asyncio.sleep(began + due - loop.time())
            tasks.append(group.create_task(_one(session, f"{url}/v1/predict", number, due, began)))
    return [task.result() for task in tasks]


async def _one(session: aiohttp.ClientSession, url: str, number: int, due: float, began: float) -> Sample:
    loop = asyncio.get_running_loop()
    text = "x" * (number % 50)
    model, level, right, said = "none", 0, False, ""
    try:
        async with session.post(url, json={"data": text}, timeout=aiohttp.ClientTimeout(total=10.0)) as response:
            answer: Any = await response.json()
            if response.status == 200:
                info = answer["data"]["route_info"]
                model, level = info["selected_model"], info["fallback_level"]
                right = answer["data"]["final_label"] == ("even" if len(text) % 2 == 0 else "odd")
            said = "" if right else f"{response.status} {answer}"
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        said = f"{type(error).__name__}: {error}"
    return Sample(due, loop.time() - began - due, model, level, right, said)


async def scrape(url: str, every_s: float, seen: list[tuple[float, dict[str, float]]]) -> None:
    """Add (seconds, gauges) to `seen` until cancelled; a gauge is named `ramp MODEL` or `breaker_state MODEL`."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while True:
        page = await asyncio.to_thread(_page, f"{url}/metrics")
        seen.append((loop.time() - began, {f"{kind} {model}": float(value) for kind, model, value in _GAUGE.findall(page)}))
        await asyncio.sleep(every_s)


def _page(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=5.0) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def share(samples: list[Sample], percent: float) -> float:
    """Return a percentile of the latencies in milliseconds; 0 for no samples."""
    ordered = sorted(sample.latency for sample in samples)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] * 1e3 if ordered else 0.0
