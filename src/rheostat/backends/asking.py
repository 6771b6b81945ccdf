"""What is asked of a language model's endpoint, by kind: at which page, with which token chances, how its answer is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from msgspec import Raw, structs

from rheostat.backends.chat_completion import read_completion, without_chances
from rheostat.backends.endpoint import with_path
from rheostat.backends.text_completion import read_text, read_vectors
from rheostat.backends.token_confidence import NEEDED, TokenConfidence
from rheostat.backends.upstream import Upstream
from rheostat.pool.backend import Reply, Row
from rheostat.types import Chat, Prediction
from rheostat.types.chat import Kind
from rheostat.types.prompt import Prompt, Texts

_PATHS: Mapping[Kind, str] = {"completion": "/completions", "embedding": "/embeddings"}


class Asking:
    """One endpoint's pages; `upstream` is that of conversations, which are also what every text of another task becomes."""

    def __init__(
        self, upstream: Upstream, base_url: str, serves: Sequence[Kind], confidence: TokenConfidence | None
    ) -> None:
        self._chats = upstream
        self._pages = {kind: upstream.at(with_path(base_url, path)) for kind, path in _PATHS.items() if kind in serves}
        self._confidence = confidence

    def page(self, row: Row) -> Upstream:
        """Return where the row goes."""
        return self._pages[row.kind] if isinstance(row, Prompt) else self._chats

    def reader(self, row: Row) -> Callable[[bytes], Reply]:
        """Return what reads an answer that came with no chances asked for."""
        if isinstance(row, Texts):
            return partial(read_vectors, wanted=len(row.inputs))
        return read_text if isinstance(row, Prompt) else read_completion

    def with_chances(self, row: Row, fields: dict[str, Raw]) -> None:
        """Ask for the token chances that the confidence is made of."""
        if self._confidence is None or isinstance(row, Texts):
            return
        needed, wanted = NEEDED[self._confidence], _wanted(row) or 0
        if isinstance(row, Prompt):
            fields["logprobs"] = Raw(b"%d" % max(needed, wanted, 1))
            return
        fields["logprobs"] = Raw(b"true")
        if needed:
            fields["top_logprobs"] = Raw(b"%d" % max(needed, wanted))

    def read(self, row: Row, content: bytes) -> Reply:
        """Read a whole answer, and take chances out of it again that the client did not ask for."""
        if self._confidence is None or isinstance(row, Texts):
            reply = self.reader(row)(content)
        else:
            reply = (read_text if isinstance(row, Prompt) else read_completion)(content, self._confidence)
        if not isinstance(reply, Prediction):
            return reply
        if not isinstance(row, Chat):
            return structs.replace(reply, output=None)
        if self._confidence is None or isinstance(row, Texts):
            return reply
        wanted, least = _wanted(row), NEEDED[self._confidence]
        if wanted is not None and wanted >= (max(least, 1) if isinstance(row, Prompt) else least):
            return reply
        return structs.replace(reply, output=without_chances(content, wanted))


def _wanted(row: Row) -> int | None:
    """Return how many alternatives of each token the client wanted; None when it wanted no chances."""
    if not isinstance(row, Chat):
        return None
    given = row.asks("logprobs")
    if not isinstance(row, Prompt):
        if given is not True:
            return None
        given = row.asks("top_logprobs") or 0
    return (
        max(0, given) if isinstance(given, int) and not isinstance(given, bool) else (None if isinstance(row, Prompt) else 0)
    )
