"""Several clients that send labelled sentences to the gateway over HTTP and time every answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    import aiohttp

_LIMIT_S = 30.0  # a client gives up on one answer


class Row(Struct, frozen=True):
    """One sentence to send: its id in the labelled set, and its text."""

    id: str
    text: str


class Heard(Struct, frozen=True):
    """What a client got: the HTTP status (0: no answer), the label, the cost, and how long it waited."""

    status: int
    seconds: float
    label: str | None = None
    cost: float = 0.0


class _Data(Struct):
    final_label: str | None
    route_info: Mapping[str, object]


class _Body(Struct):
    data: _Data


def request_id(route: str, row: str) -> str:
    """Return the id under which a row's request on a route is recorded."""
    return f"{route}.{row}"


async def send(url: str, route: str, rows: Sequence[Row], clients: int, done: Callable[[int, int], None]) -> list[Heard]:
    """Send every row to a route; each client sends its next one as soon as its last is answered.

    Args:
        clients: how many at a time.
        done: hears how many answers are there, of how many.

    Returns what was heard, in the order of the rows.
    """
    import aiohttp

    heard: list[Heard | None] = [None] * len(rows)
    todo = iter(enumerate(rows))
    count = 0

    async def client(session: aiohttp.ClientSession, todo: Iterator[tuple[int, Row]]) -> None:
        nonlocal count
        for index, row in todo:
            heard[index] = await _ask(session, url, route, row)
            count += 1
            done(count, len(rows))

    timeout = aiohttp.ClientTimeout(total=_LIMIT_S)
    connector = aiohttp.TCPConnector(limit=clients)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session, asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client(session, todo))
    return [each for each in heard if each is not None]


async def _ask(session: aiohttp.ClientSession, url: str, route: str, row: Row) -> Heard:
    import aiohttp

    body = msgspec.json.encode({"data": row.text, "route": {"name": route}})
    headers = {"content-type": "application/json", "x-request-id": request_id(route, row.id)}
    began = time.perf_counter()
    try:
        async with session.post(f"{url}/v1/predict", data=body, headers=headers) as response:
            answer = await response.read()
            waited = time.perf_counter() - began
            if response.status != 200:
                return Heard(response.status, waited)
    except (aiohttp.ClientError, TimeoutError):
        return Heard(0, time.perf_counter() - began)
    said = msgspec.json.decode(answer, type=_Body).data
    return Heard(200, waited, said.final_label, float(str(said.route_info["cost"])))


async def judge(url: str, labels: Mapping[str, str]) -> None:
    """Tell the gateway what would have been right, by request id, as an application does when it finds out."""
    import aiohttp

    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_LIMIT_S)) as session:
        for name, label in labels.items():
            judgement = {"request_id": name, "label": label, "source": "demo"}
            async with session.post(f"{url}/v1/feedback", json=judgement) as response:
                response.raise_for_status()
