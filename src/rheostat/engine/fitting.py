"""A conversation that is longer than the model that was chosen can take: what it gets of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw, Struct, structs

from rheostat.types import Chat, History, Outcome, Request, tokens_of
from rheostat.types.talk import Talk

if TYPE_CHECKING:
    from rheostat.clock import Clock
    from rheostat.engine.execute import Executor
    from rheostat.engine.progress import Progress
    from rheostat.engine.stream import Outlet
    from rheostat.pool import Model, Pool

_SHARE = 0.5  # of the room for turns that a summary leaves to them, so that the next turns need no new one
_FRAME = 32  # tokens that a summary takes besides its words
_ASKED = (
    "Summarise the conversation below for an assistant who will go on with it and sees nothing else of it. Keep names, "
    "numbers, dates, decisions, wishes of the user and open questions; leave out greetings. Write at most {words} words, in "
    "the conversation's language, and nothing but the summary."
)


class Summarising(Struct, frozen=True):
    """Which model of a route writes summaries of what others cannot take, and of about how many `tokens`."""

    by: str
    tokens: int


def fitted(model: Model, request: Request) -> Request:
    """Return the request as this model gets it."""
    data = request.data
    if not isinstance(data, Talk):
        return request
    part = data.fitted(model.settings.max_input, model.name)
    return request if part is data else structs.replace(request, data=part)


def history_of(request: Request) -> History | None:
    """Return what the record says of what was said before."""
    data = request.data
    if not isinstance(data, Talk):
        return None
    return History(len(data.turns), dict(data.left_out), bool(data.summary and data.left_out))


async def run_summarised(
    executor: Executor, pool: Pool, summarising: Summarising, model: Model, request: Request, tries: int, patience_s: float,
    outlet: Outlet | None, progress: Progress,
) -> Outcome:  # fmt: skip
    """Ask the model; where the conversation is too long for it, after a summary of what it will not get.

    The calls for a summary count as attempts of this outcome, at their own cost. They have half of the time that is left,
    and when they fail the model gets the latest turns alone.
    """
    said = await _summary(executor, pool, summarising, model, request, patience_s)
    outcome = await executor.run(model, request, tries, patience_s, outlet, progress)
    if said is None:
        return outcome
    return structs.replace(
        outcome, attempts=said.attempts + outcome.attempts, cost=said.cost + outcome.cost,
        elapsed_s=said.elapsed_s + outcome.elapsed_s,
    )  # fmt: skip


async def _summary(
    executor: Executor, pool: Pool, summarising: Summarising, model: Model, request: Request, patience_s: float
) -> Outcome | None:
    talk, limit = request.data, model.settings.max_input
    if not isinstance(talk, Talk) or not limit or tokens_of(talk) <= limit:
        return None
    room = limit if talk.summary else limit - summarising.tokens - _FRAME
    if talk.begins(room) <= talk.covered:
        return None
    covered = talk.begins(room, _SHARE)
    writer = pool[summarising.by]
    asked = _question(talk, covered, summarising.tokens, writer.settings.max_input)
    half = _half_of(request, executor.clock)
    own = structs.replace(request, data=asked, text=asked["text"], deadline=half)
    said = await executor.run(writer, own, 1, patience_s)
    if said.prediction is not None:
        talk.summarised(said.prediction.label.strip(), covered)
    return said


def _half_of(request: Request, clock: Clock) -> float:
    now = clock.monotonic()
    return request.deadline if request.deadline == float("inf") else now + (request.deadline - now) / 2


def _question(talk: Talk, covered: int, tokens: int, limit: int) -> Chat:
    """Return what the writer is asked about the first `covered` turns, without the oldest where it cannot take all."""
    told = [f"{message['role']}: {_text(message)}" for message in map(msgspec.json.decode, _messages(talk, covered))]
    if talk.summary:
        told.insert(0, f"Summary of what came before: {talk.summary}")
    while True:
        words = _ASKED.format(words=max(10, tokens * 2 // 3)) + "\n\n" + "\n".join(told)
        message = Raw(msgspec.json.encode([{"role": "user", "content": words}]))
        asked = Chat({"messages": message, "max_tokens": Raw(b"%d" % tokens)})
        if not limit or len(told) < 2 or tokens_of(asked) <= limit:
            return asked
        del told[1 if talk.summary else 0]


def _messages(talk: Talk, covered: int) -> list[Raw]:
    """Return the messages of the turns that no summary stands for yet."""
    return [message for turn in talk.turns[talk.covered : covered] for message in turn]


def _text(message: dict[str, object]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        content = "\n".join(part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str))
    calls = message.get("tool_calls")
    told = [content] if isinstance(content, str) and content else []
    return "\n".join([*told, *([msgspec.json.encode(calls).decode()] if calls else [])])
