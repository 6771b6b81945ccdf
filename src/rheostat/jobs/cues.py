"""Asks two models what cues are learned from: the strong one writes, and the small one goes on after every cue."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from rheostat.backends.token_confidence import confidence_of
from rheostat.config import Loaded
from rheostat.config.check_joint import hindrance
from rheostat.errors import FAILURES, ConfigError, ModelError, Problem
from rheostat.lab.cues import Passage
from rheostat.pool.backend import ModelSettings, RemoteBackend
from rheostat.segments.borders import Borders, Segment, is_fenced, segments
from rheostat.segments.cues import cue_of
from rheostat.types import Prediction
from rheostat.types.begun import Until, begun

PATIENCE_S = 600.0
_MOST = 64  # tokens of a segment that the small model writes
_TRIES = 2
_SHORT = 3  # characters behind a cue that say nothing


async def measure_cues(
    loaded: Loaded,
    prompts: Sequence[str],
    *,
    strong: str,
    small: str,
    at: Segment = "sentence",
    tokens: int = 192,
    progress: Callable[[int, int], None] | None = None,
) -> list[Passage]:
    """Have `strong` answer every prompt with up to `tokens` tokens, and `small` go on behind the cue of every segment but
    the first, up to the segment's end; return how sure either was.

    Raises:
        ConfigError: a model is not there, or cannot go on with a text.
        ModelError: a call failed, or a model tells no token chances.
    """
    for field, name in (("--strong", strong), ("--small", small)):
        settings = loaded.config.models.get(name)
        why = (
            f"the config has no model `{name}`"
            if settings is None
            else (hindrance(settings) and f"`{name}` {hindrance(settings)}")
        )
        if why:
            raise ConfigError([Problem(field, None, why)], loaded.path)
    found: list[Passage] = []
    models: Mapping[str, ModelSettings] = loaded.config.models
    leader, follower = models[strong].open(loaded.base), models[small].open(loaded.base)
    assert isinstance(leader, RemoteBackend)
    assert isinstance(follower, RemoteBackend)
    try:
        for number, prompt in enumerate(prompts):
            text, chances = await _written(leader, prompt, "", tokens, None, strong)
            starts = list(accumulate((len(each["token"]) for each in chances), initial=0))
            begins = 0
            for place, segment in enumerate(segments(text, at)):
                start, begins = begins, begins + len(segment)
                cue = cue_of(segment + " ") if place else None
                if cue is None or len(segment) - cue[1] <= _SHORT:
                    continue
                said, rest = text[: start + cue[1]], segment[cue[1] :]
                look = Borders(at, fenced=is_fenced(said)).look
                added, theirs = await _written(follower, prompt, said, _MOST, look, small)
                own = [each for each, where in zip(chances, starts, strict=False) if len(said) <= where < begins]
                margin, own_margin = confidence_of(theirs, "margin"), confidence_of(own, "margin")
                if margin is not None and own_margin is not None:
                    found.append(Passage(number, cue[0], margin, own_margin, added == rest))
            if progress is not None:
                progress(number + 1, len(prompts))
    finally:
        await leader.aclose()
        await follower.aclose()
    return found


async def _written(
    model: RemoteBackend, prompt: str, said: str, room: int, until: Until | None, name: str
) -> tuple[str, list[Any]]:
    """Return what the model adds, and the chances of its tokens; without the token that only showed that a segment had
    ended."""
    for _ in range(_TRIES):
        (reply,) = await model.apredict((begun(prompt, said, room, until, chances=2),), PATIENCE_S)
        if isinstance(reply, Prediction) or not FAILURES[reply.kind].retryable:
            break
    if not isinstance(reply, Prediction):
        raise ModelError(reply.kind, f"{name}: {reply}")
    choice = json.loads(reply.output)["choices"][0]
    chances = (choice["logprobs"] or {}).get("content") or []
    added = reply.label[len(said) :]
    if not chances and added:
        raise ModelError("bad_output", f"{name} tells no token chances: its server has to give `logprobs`")
    return added, chances[:-1] if choice["finish_reason"] == "border" else chances
