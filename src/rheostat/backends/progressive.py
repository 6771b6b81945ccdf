"""A quick answer that a better model takes over: the fast one is heard at once, the strong one ends it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from rheostat.backends.joint import Joint, JointSettings
from rheostat.backends.writing import Writing
from rheostat.errors import ModelError
from rheostat.pool.backend import Piece, RemoteBackend, Reply, Row
from rheostat.segments.borders import Borders, Segment


class ProgressiveModel(JointSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="progressive"):
    """`fast` begins the answer to a streamed conversation, and `strong` takes it over: at the first end of a sentence, a
    `line` or a `block` (`at`; fenced code is one block) where it is ready, it goes on with the text that was sent.

    With `ahead` the strong model reads the conversation as soon as the fast one has begun, and is ready when it has: this
    costs a token of it, and where its server keeps no prompts, the conversation twice. Without it the strong model is ready
    at once, and reads everything when it takes over. The fast model's own end is a border, too: the strong one may add to
    it. When the strong model fails, the fast one goes on; when the fast one fails, the strong one takes over where it
    stopped.

    Who does not stream gets the answer of the strong model alone, as does who sends pictures, or wants tools, a format,
    several choices or chances.
    """

    fast: str
    strong: str
    at: Segment = "sentence"
    ahead: bool = True

    parts = ("fast", "strong")

    def __post_init__(self) -> None:
        self._check_parts()

    def open(self, base: str) -> RemoteBackend:  # noqa: ARG002
        """Return the model; its parts are the pool's."""
        return Progressive(self)


class Progressive(Joint):
    """Lets the fast model begin and the strong one go on."""

    def __init__(self, settings: ProgressiveModel) -> None:
        super().__init__(settings)
        self._fast, self._strong = settings.fast, settings.strong
        self._at: Segment = settings.at
        self._ahead = settings.ahead

    def _first(self) -> str:
        return self._strong

    async def _whole(self, row: Row, timeout_s: float) -> Reply:
        try:
            return await self._single(row, timeout_s)
        except ModelError as error:
            return error

    async def _written(self, writing: Writing) -> AsyncGenerator[Piece]:
        ready = [] if self._ahead else [True]
        ahead: asyncio.Task[None] | None = None
        borders = Borders(self._at)

        def until(added: str) -> int | None:
            end = borders.look(added)
            return end if ready and ready[0] else None

        try:
            async with aclosing(writing.go_on(self._fast, "begins", until)) as pieces:
                async for piece in pieces:
                    if self._ahead and ahead is None:  # not before: both may have to share a machine
                        ahead = asyncio.ensure_future(writing.warm(self._strong, ready))
                    yield piece
            began = writing.failure is None
            finish = writing.finish
            if ahead is not None:
                await ahead
            if began and ready and not ready[0]:
                return  # the fast model has written it all
            async with aclosing(writing.go_on(self._strong, "takes over")) as pieces:
                async for piece in pieces:
                    yield piece
            if writing.failure is None or not began:
                return
            if finish is not None:
                writing.failure, writing.finish = None, finish
                return
            async with aclosing(writing.go_on(self._fast, "the strong model failed")) as pieces:
                async for piece in pieces:
                    yield piece
        finally:
            if ahead is not None and not ahead.done():
                ahead.cancel()
                await asyncio.wait((ahead,))
