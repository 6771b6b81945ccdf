"""Two models in turns within one answer: the strong one leads, the small one writes the easy segments."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from rheostat.backends.joint import Joint, JointSettings, refusal
from rheostat.backends.writing import Writing
from rheostat.pool.backend import Piece, RemoteBackend
from rheostat.segments.borders import Borders, is_fenced
from rheostat.segments.cues import Cues, CueWatch, load_cues


class RelayModel(JointSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="relay"):
    """`strong` writes the answer, but where a segment begins with one of the words or marks that `cues` names (a file of
    `rheostat relay calibrate`), `small` writes the rest of it, up to `most` tokens; then the strong one goes on.

    Each model is told the whole text so far, in its own chat template. When the small model fails, the strong one writes the
    rest alone; when the strong one fails after it began, the small one ends the answer. Who sends pictures, or
    wants tools, a format, several choices or chances, gets the answer of the strong model alone.

    Source of the idea: RelayGen (arXiv 2602.06454).
    """

    strong: str
    small: str
    cues: str
    most: Annotated[int, Meta(ge=1)] = 64

    parts = ("strong", "small")

    def __post_init__(self) -> None:
        self._check_parts()

    def open(self, base: str) -> RemoteBackend:
        """Read the cues; the models are the pool's.

        Raises:
            ConfigError: the file cannot be used, or was made for other models.
        """
        try:
            cues = load_cues(Path(base, self.cues))
        except ValueError as error:
            raise refusal("cues", f"{self.cues}: {error}") from error
        if not cues.chosen:
            raise refusal("cues", f"{self.cues} chooses no cue, so the small model would never write: calibrate anew")
        return Relay(self, cues)


class Relay(Joint):
    """Lets two models write in turns."""

    def __init__(self, settings: RelayModel, cues: Cues) -> None:
        super().__init__(settings)
        self.cues = cues
        self._strong, self._small, self._most = settings.strong, settings.small, settings.most

    def _first(self) -> str:
        return self._strong

    async def _written(self, writing: Writing) -> AsyncGenerator[Piece]:
        chosen, at = self.cues.chosen, self.cues.at
        begins = False
        while True:
            watch = CueWatch(chosen, at, begins=begins, fenced=is_fenced(writing.text))
            async with aclosing(writing.go_on(self._strong, "leads", watch.look)) as pieces:
                async for piece in pieces:
                    yield piece
            if writing.failure is not None and writing.text and chosen:
                async with aclosing(writing.go_on(self._small, "the strong model failed")) as pieces:
                    async for piece in pieces:
                        yield piece
                return
            if writing.failure is not None or writing.finish is not None:
                return
            borders = Borders(at, fenced=is_fenced(writing.text))
            async with aclosing(writing.go_on(self._small, f"cue: {watch.found}", borders.look, self._most)) as pieces:
                async for piece in pieces:
                    yield piece
            if writing.finish == "length":
                return
            if writing.failure is not None:
                chosen = frozenset()
            begins = writing.failure is None and writing.finish is None and writing.at_border
