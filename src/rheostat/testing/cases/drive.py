"""Runs one case: upstreams, gateway, requests at their times, and everything that can be seen afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from rheostat.testing.cases.binding import session_for
from rheostat.testing.cases.capabilities import lacking, takes_streams
from rheostat.testing.cases.client import Answer, exchange
from rheostat.testing.cases.form import Case, Change, RequestWords
from rheostat.testing.cases.gateway import GatewayProcess
from rheostat.testing.cases.mapping import Mapped, mapped, secret_of
from rheostat.testing.cases.sending import Sender
from rheostat.testing.upstream import FaultyUpstream

TRAP = "trap"
_SETTLE_S = 0.3
_RELOAD_S = 1.5


class Seen(Struct, kw_only=True):
    """Everything that a case's checks look at. `began` is when its clock was at 0, on `time.monotonic`."""

    case: Case
    upstreams: Mapping[str, FaultyUpstream]
    lacks: tuple[str, ...] = ()
    refused: bool = False
    began: float = 0.0
    answers: list[Answer] = []
    before: str = ""
    after: str = ""
    scrapes: list[str] = []
    status: dict[str, Any] = {}
    log: str = ""
    output: str = ""
    shown_config: str = ""


async def drive(case: Case) -> Seen:
    """Run `case` against a gateway of its own, or say in `lacks` what Rheostat would need for it.

    Raises:
        CaseError: its words do not go together.
        RuntimeError: the gateway did not come up, or a page of it could not be had.
    """
    async with _upstreams(case) as upstreams:
        urls = {name: upstream.url for name, upstream in upstreams.items()}
        made = mapped(case.config, urls)
        seen = Seen(case=case, upstreams=upstreams, lacks=lacking(made.config))
        if not seen.lacks:
            with tempfile.TemporaryDirectory(prefix="rheostat-case-") as folder:
                await _in_folder(seen, made, urls, Path(folder))
        return seen


async def _in_folder(seen: Seen, made: Mapped, urls: Mapping[str, str], folder: Path) -> None:
    gateway = GatewayProcess(folder, secret_of(seen.case.config))
    gateway.write(made.config)
    await gateway.start()
    try:
        if gateway.refused:
            seen.refused = True
        elif any(asked.stream for asked in seen.case.requests) and not takes_streams(await gateway.contract()):
            seen.lacks = ("streams",)
        else:
            await _served(seen, made, urls, gateway)
    finally:
        await gateway.stop()
        seen.output = gateway.output
        seen.log = gateway.log()


async def _served(seen: Seen, made: Mapped, urls: Mapping[str, str], gateway: GatewayProcess) -> None:
    case = seen.case
    sender = Sender(made.session_header, _sessions(case, made), urls.get(TRAP, "http://127.0.0.1:1"))
    seen.before = await gateway.metrics()
    seen.began = time.monotonic()
    jobs = [_changes(case, urls, gateway, seen.began), _scraped(seen, gateway)]
    number = 0
    for asked in case.requests:
        answers = [Answer(number + index) for index in range(asked.count)]
        number += asked.count
        seen.answers += answers
        jobs.append(_group(asked, answers, sender, gateway, seen))
    async with asyncio.TaskGroup() as group:
        for job in jobs:
            group.create_task(job)
    await asyncio.sleep(_SETTLE_S)
    seen.after = await gateway.metrics()
    seen.status = await gateway.status()
    seen.shown_config = await gateway.shown_config()


async def _group(asked: RequestWords, answers: list[Answer], sender: Sender, gateway: GatewayProcess, seen: Seen) -> None:
    """Send one entry of the list: at its times, all at once, or each when the one before has been answered."""

    async def one(index: int, at: float | None) -> None:
        answer = answers[index]
        sending, answer.own_id = sender.make(asked, answer.number, index)
        port = gateway.admin_port if seen.case.config.admin_secret is not None and "admin" in sending.path else gateway.port
        if at is not None:
            await _until(seen.began + at)
        answer.at = time.monotonic() - seen.began
        await exchange(port, sending, answer)

    if asked.parallel or asked.every is not None:
        async with asyncio.TaskGroup() as group:
            for index in range(asked.count):
                group.create_task(one(index, asked.at + index * (asked.every or 0.0)))
        return
    await _until(seen.began + asked.at)
    for index in range(asked.count):
        await one(index, None)


async def _changes(case: Case, urls: Mapping[str, str], gateway: GatewayProcess, began: float) -> None:
    for change in sorted(case.steps, key=lambda change: change.at):
        await _until(began + change.at)
        gateway.write(_file_of(change, urls))
    if case.steps:
        await asyncio.sleep(_RELOAD_S)


def _file_of(change: Change, urls: Mapping[str, str]) -> Any:
    return change.write_config_raw if change.write_config is None else mapped(change.write_config, urls).config


async def _scraped(seen: Seen, gateway: GatewayProcess) -> None:
    count = max((check.scrapes or 0 for check in seen.case.expect), default=0)
    for index in range(count):
        await _until(seen.began + seen.case.lasts_s * (index + 1) / count)
        seen.scrapes.append(await gateway.metrics())


def _sessions(case: Case, made: Mapped) -> dict[str, str]:
    """Choose the values of sessions that are bound to a model."""
    chosen: dict[str, str] = {}
    for asked in case.requests:
        if asked.bind is not None:
            for name, value in asked.headers.items():
                if name.lower() == made.session_header:
                    chosen[value] = session_for(asked.bind, value, asked.route or "default", made.config)
    return chosen


async def _until(when: float) -> None:
    if (left := when - time.monotonic()) > 0:
        await asyncio.sleep(left)


@contextlib.asynccontextmanager
async def _upstreams(case: Case) -> AsyncIterator[dict[str, FaultyUpstream]]:
    """Start a scripted server for every model of the case, and those that its script names besides."""
    configs = [case.config, *(change.write_config for change in case.steps if change.write_config is not None)]
    models = {name: model for config in configs for name, model in config.models.items()}
    async with contextlib.AsyncExitStack() as stack:
        upstreams = {}
        for name in dict.fromkeys((*models, *case.upstream)):
            model = models.get(name)
            server = FaultyUpstream(
                *case.upstream.get(name, ()),
                labels=model.labels if model is not None else (),
                output=(model.output if model is not None else None) or "output",
            )
            upstreams[name] = await stack.enter_async_context(server)
        yield upstreams
