"""Asks an Open Inference Protocol server, having heard from it what it serves."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rheostat.backends.inference_answer import read_answers
from rheostat.backends.inference_facts import Facts, Transport, facts_of
from rheostat.backends.openai import answer_each
from rheostat.errors import ContractError, ModelError
from rheostat.pool.backend import Reply, Row
from rheostat.tensors import Tensor

if TYPE_CHECKING:
    from rheostat.backends.inference import InferenceModel

_APART = frozenset({"bad_output", "input_refused", "input_too_large", "misconfigured", "upstream_error"})
"""Failures of a call with several rows after which each row is asked by itself: one of them may be to blame."""
_FORGET = frozenset({"bad_output", "connection", "misconfigured", "reset"})
"""Failures after which the server may be another one than before."""
ASK_S = 10.0
"""Seconds that the server's questions about itself may take."""
AGAIN_S = 1.0
SILENT_S = 30.0
"""Seconds until a server that differs from the config, or that says nothing of the model, is asked about itself again."""


class InferenceClassifier:
    """Asks a server that it knows: what it says of itself is read before the first row, and again when it was away."""

    def __init__(self, settings: InferenceModel, transport: Transport, labels: tuple[str, ...] | None) -> None:
        self.labels = labels
        self._settings = settings
        self._transport = transport
        self._described = settings.input.described
        self._facts: Facts | None = None
        self._asking: asyncio.Task[Facts] | None = None

    async def apredict(self, rows: Sequence[Row], timeout_s: float) -> Sequence[Reply]:
        """Answer every row within `timeout_s` seconds; each fails alone.

        Raises:
            ModelError: the server is not there, or not what the config says.
        """
        loop = asyncio.get_running_loop()
        start = loop.time()
        facts = self._facts
        if facts is None or facts.until < start:
            facts = await self._learned(timeout_s)
            timeout_s -= loop.time() - start
        if facts.wrong:
            raise ModelError("misconfigured", "; ".join(facts.wrong))
        if len(rows) == 1 or not facts.stacks or self._settings.side_effects or self._settings.max_rows == 1:
            return await answer_each(lambda row, left: self._one(row, left, facts), rows, timeout_s, self._settings.parallel)
        return await self._together(rows, timeout_s, facts)

    async def adescribe(self, timeout_s: float) -> None:
        """Hold what the server says of the model to what the config says; with `load`, it may take as long to load it.

        Raises:
            ContractError: it differs; everything is named.
            ModelError: the server does not answer.
        """
        facts = await self._learned(timeout_s + self._settings.load_timeout if self._settings.load else timeout_s)
        if facts.wrong:
            raise ContractError("; ".join(facts.wrong))

    async def acheck(self, timeout_s: float) -> None:
        """Return when the model is ready on the server and is what the config says.

        Raises:
            ModelError: it is not.
        """
        loop = asyncio.get_running_loop()
        start = loop.time()
        facts = self._facts
        if facts is None or facts.until < start:
            facts = await self._learned(timeout_s)
        await self._transport.ready(timeout_s - (loop.time() - start))
        if facts.wrong:
            raise ModelError("misconfigured", "; ".join(facts.wrong))

    async def aload(self, timeout_s: float) -> None:
        """Have the server load the model, or load it again.

        Raises:
            ModelError: it does not.
        """
        self._facts = None
        await self._transport.control("load", timeout_s)

    async def aunload(self, timeout_s: float) -> None:
        """Have the server unload the model.

        Raises:
            ModelError: it does not.
        """
        await self._transport.control("unload", timeout_s)

    async def aclose(self) -> None:
        """Close the connections; what the server has loaded stays loaded."""
        if self._asking is not None and not self._asking.done():
            self._asking.get_loop().call_soon_threadsafe(self._asking.cancel)
        await self._transport.aclose()

    async def _learned(self, timeout_s: float) -> Facts:
        """Ask the server about itself, once for all who wait for it."""
        loop = asyncio.get_running_loop()
        asking = self._asking
        if asking is None or asking.done() or asking.get_loop() is not loop:
            asking = self._asking = loop.create_task(self._ask())
            asking.add_done_callback(lambda task: task.cancelled() or task.exception())  # nobody may be left to hear it
        try:
            async with asyncio.timeout(None if math.isinf(timeout_s) else timeout_s):
                return await asyncio.shield(asking)
        except TimeoutError:
            raise ModelError("timeout", "the server did not say in time what its model is") from None

    async def _ask(self) -> Facts:
        settings, loop = self._settings, asyncio.get_running_loop()
        if settings.load:
            try:
                await self._transport.ready(ASK_S)
            except ModelError as error:
                if error.kind in ("connection", "reset", "timeout"):
                    raise
                await self._transport.control("load", settings.load_timeout)
        metadata = await self._transport.metadata(ASK_S)
        facts = facts_of(
            metadata, self._described, settings.output, self.labels,
            batched=settings.input.batched, softmax=settings.softmax,
        )  # fmt: skip
        if metadata is None or facts.wrong:
            facts = facts._replace(until=loop.time() + (AGAIN_S if facts.wrong else SILENT_S))
        self._facts = facts
        return facts

    async def _one(self, row: Row, timeout_s: float, facts: Facts) -> Reply:
        return (await self._call([self._settings.input.of(row)], timeout_s, facts))[0]

    async def _together(self, rows: Sequence[Row], timeout_s: float, facts: Facts) -> list[Reply]:
        """Send several rows in one call; one that cannot be sent fails alone."""
        replies: list[Reply | None] = [None] * len(rows)
        ready: list[tuple[int, list[Any]]] = []
        for index, row in enumerate(rows):
            try:
                ready.append((index, self._settings.input.of(row)))
            except ModelError as error:
                replies[index] = error

        async def several(group: Sequence[tuple[int, list[Any]]], left_s: float) -> Reply:
            loop = asyncio.get_running_loop()
            until = loop.time() + left_s
            try:
                answers = await self._call([values for _, values in group], left_s, facts)
            except ModelError as error:
                answers = [error] * len(group)
                if len(group) > 1 and error.kind in _APART:
                    for place, (_, values) in enumerate(group):
                        answers[place] = await self._alone(values, until - loop.time(), facts)
            for (index, _), answer in zip(group, answers, strict=True):
                replies[index] = answer
            return answers[0]

        size = self._settings.max_rows
        groups = [ready[at : at + size] for at in range(0, len(ready), size)]
        if groups:
            await answer_each(several, groups, timeout_s, self._settings.parallel)
        return [reply if reply is not None else ModelError("timeout", "no time left to ask") for reply in replies]

    async def _alone(self, values: list[Any], timeout_s: float, facts: Facts) -> Reply:
        try:
            return (await self._call([values], timeout_s, facts))[0]
        except ModelError as error:
            return error

    async def _call(self, rows: Sequence[list[Any]], timeout_s: float, facts: Facts) -> list[Reply]:
        shape: tuple[int, ...] = (
            (len(rows), *self._described.shape[1:]) if self._settings.input.batched else self._described.shape
        )
        given = Tensor(
            self._described.name, self._described.datatype, shape[:1] if facts.flat_texts else shape,
            rows[0] if len(rows) == 1 else [value for row in rows for value in row],
        )  # fmt: skip
        try:
            answer = await self._transport.infer(given, self._settings.output, timeout_s, binary=facts.binary)
            return read_answers(answer, self.labels, len(rows), softmax=self._settings.softmax)
        except ModelError as error:
            if error.kind in _FORGET and self._facts is facts:
                again = asyncio.get_running_loop().time() + (AGAIN_S if error.kind == "misconfigured" else 0.0)
                self._facts = facts._replace(until=min(facts.until, again))
            raise
