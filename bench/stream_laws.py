"""What every stream through the gateway is held to."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from bench.stream_client import Got
from bench.stream_oracle import Heard, heard
from bench.stream_script import POISON, Asked, Script
from rheostat.types import RouteRecord


class Told:
    """One stream: what its client got and wanted, what the models that were asked sent, and its records."""

    def __init__(self, got: Got, wanted: Asked, scripts: Mapping[str, Script], records: Sequence[RouteRecord]) -> None:
        self.got = got
        self.wanted = wanted
        self.scripts = scripts
        self.records = records

    @cached_property
    def models(self) -> dict[str, Heard]:
        """What each model said."""
        choices = self.wanted.choices
        return {name: heard(said.sent, choices, ended=said.then != "hang") for name, said in self.scripts.items()}

    @cached_property
    def events(self) -> list[str]:
        """The data of every event that is whole."""
        whole, _, _ = self.got.body.rpartition(b"\n\n")
        events = []
        for block in whole.decode("utf-8", "surrogateescape").split("\n\n") if whole else ():
            lines = [line.removeprefix("data: ") for line in block.split("\n") if line.startswith("data: ")]
            if lines:
                events.append("\n".join(lines))
        return events

    @cached_property
    def said(self) -> list[str]:
        """The events that are chunks."""
        events = self.events
        return events[:-1] if self.done or self.error is not None else events

    @property
    def is_stream(self) -> bool:
        """Whether the response is a stream."""
        return self.got.status == 200

    @cached_property
    def done(self) -> bool:
        """Whether it ends with the marker."""
        return self.is_stream and bool(self.events) and self.events[-1] == "[DONE]"

    @cached_property
    def error(self) -> Any:
        """The error that it ends with, if any."""
        if not self.is_stream:
            return None
        try:
            last = json.loads(self.events[-1]) if self.events else None
        except ValueError:
            return None
        return last.get("error") if isinstance(last, dict) else None

    @cached_property
    def end(self) -> str:
        """How it ended, in a word."""
        if self.got.left_at is not None:
            return "the client left"
        if not self.is_stream:
            return f"{self.got.status}"
        if self.done:
            return f"complete by {self.by or '?'}"
        return "broken off, told" if self.error is not None else "broken off"

    @cached_property
    def by(self) -> str | None:
        """The model whose words these are."""
        for name, model in self.models.items():
            if model.whole:
                if model.complete and _texts(self.said) == model.texts:
                    return name
            elif self.said == _sent_on(model.data, self.wanted)[: len(self.said)] and self.said:
                return name
        return None


def broken_laws(told: Told) -> Iterator[str]:
    """Yield what is not as it has to be."""
    got = told.got
    if POISON in got.body:
        yield "it got what was never an answer to it"
    if got.left_at is not None:
        yield from _of_the_record(told)
        if told.said and told.by is None:
            yield "what it got before it left is not what a model said"
        return
    if got.wrong:
        yield got.wrong
        return
    yield from _of_the_answer(told)
    yield from _of_the_record(told)


def _of_the_answer(told: Told) -> Iterator[str]:
    first, by = told.models.get("a"), told.by
    if first is None:
        if not _lost(told, "a"):
            yield "the first model was not asked"
        return
    reset = told.scripts["a"].then == "reset"
    if first.surely and first.speaks and not reset and not (told.done and by == "a"):
        yield f"the first model answered well, and the answer is another: {told.end}"
    if not told.is_stream:
        for name, model in told.models.items():
            if model.surely and model.speaks and told.scripts[name].then != "reset":
                yield f"status {told.got.status}, though {name} answered"
        if "b" not in told.models and not _lost(told, "b"):
            yield f"status {told.got.status}, though nobody asked b"
        return
    if not told.done and told.error is None:
        yield "the stream ends without the marker and without an error"
    if told.events[:-1].count("[DONE]"):
        yield "there is something behind the marker"
    if by is None:
        yield "it got what no model said" if told.said else "it got a stream without a word"
        return
    model = told.models[by]
    if told.done:
        if not model.complete:
            yield f"{by} broke off, and the client was told that it is complete"
        if not model.whole and len(told.said) < len(least := _sent_on(model.least, told.wanted)):
            yield f"it is told to be complete, and {len(least) - len(told.said)} chunks are missing"
    elif model.surely and told.scripts[by].then != "reset":
        yield f"{by} was complete, and the client was told that it broke off: {told.error}"
    elif not model.speaks:
        yield f"{by} broke off before it said anything, and that was sent"


def _lost(told: Told, name: str) -> bool:
    """Return whether a model never got the call because its server was just closing the connection that it went out on."""
    tries = [each for record in told.records for outcome in record.outcomes for each in outcome.attempts]
    return any(each.model == name and each.failure is not None and each.failure.kind == "reset" for each in tries)


def _sent_on(said: list[str], wanted: Asked) -> list[str]:
    """Return the events that go on to the client; the usage only where it asked for it."""
    if wanted.usage:
        return said
    return [data for data in said if not ('"usage"' in data and json.loads(data)["choices"] == [])]


def _texts(events: Sequence[str]) -> dict[int, str]:
    texts: dict[int, str] = {}
    for event in events:
        for choice in json.loads(event)["choices"]:
            index = choice.get("index", 0)
            texts[index] = texts.get(index, "") + (choice["delta"].get("content") or "")
    return texts


def _of_the_record(told: Told) -> Iterator[str]:
    if len(told.records) != 1:
        if not (told.got.left_at is not None and not told.scripts):
            yield f"it has {len(told.records)} records"
        return
    (record,) = told.records
    pieces = [attempt.pieces for outcome in record.outcomes for attempt in outcome.attempts]
    if told.got.left_at is not None:
        if record.status not in ("cancelled", "ok", "error"):
            yield f"its client left, and its record says {record.status}"
        return
    if told.done:
        if record.status not in ("ok", "degraded") or record.selected_model != told.by:
            yield f"{told.by} answered, and the record says {record.status} by {record.selected_model!r}"
        model = told.models.get(told.by or "")
        if model is not None:
            finish = model.finishes.get(0, "end")
            if record.label != finish:
                yield f"it finished with {finish!r}, and the record says {record.label!r}"
    elif record.status != "error":
        yield f"nobody answered, and the record says {record.status}"
    if told.error is not None:
        last = record.outcomes[-1]
        if last.served_by != told.by or last.failure is None or "failed after first piece" not in last.failure.message:
            yield f"it broke off, and the record says {last.served_by} {last.failure}"
        if not pieces or not 0 < pieces[-1] <= len(told.said):
            yield f"{len(told.said)} chunks came, and the record says {pieces}"
