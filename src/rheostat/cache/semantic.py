"""Answers to similar questions: which kept question a new one is nearest to, among those that differ in nothing else."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta, Raw, Struct, structs

from rheostat.cache.answers import Question
from rheostat.pool.onnx_tokens import TextEncoder
from rheostat.types import Chat, Request

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_BEFORE = ("system", "developer")
_GROWTH = 64


class SemanticSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Also gives the answer to a similar question: one whose text is at least `similarity` similar (0.5 to 1), and that is
    the same in everything else. Some such answers will be wrong ones: `bench/README.md` says how many there were on real
    questions. Only for conversations of a single question in text alone: none with earlier turns, tools, pictures, sound
    or files. At most `entries` questions are remembered, the oldest go first.

    `encoder` is a folder with `encoder.onnx` and `tokenizer.json`, a sentence encoder that runs in a thread for every
    question which is not in the cache word for word. A text of `max_tokens` or more has no similar ones.
    """

    encoder: str
    similarity: float = 0.97
    entries: Annotated[int, Meta(ge=1, le=100_000)] = 2_000
    max_tokens: Annotated[int, Meta(ge=8, le=8192)] = 128

    def __post_init__(self) -> None:
        if not 0.5 <= self.similarity <= 1.0:
            raise ValueError(f"`similarity` must lie between 0.5 and 1, got {self.similarity}")


class Near(NamedTuple):
    """A question by its meaning: `frame` stands for all of it but the text, whose embedding of length 1 is `vector`."""

    frame: bytes
    vector: NDArray[np.float32]


class Semantic:
    """Remembers questions by their meaning; their answers are kept elsewhere, by `key`."""

    def __init__(self, settings: SemanticSettings, encoder: Any, made_of: object = None) -> None:
        self.settings = settings
        self.made_of = made_of
        self._encoder = encoder
        self._frames: OrderedDict[bytes, _Frame] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def near(self, question: Question, request: Request) -> Near | None:
        """Embed a question (it takes milliseconds); None for one that may have no similar ones."""
        framed = _framed(request)
        frame = None if framed is None else question.key(framed)
        if frame is None or not self._encoder.fits(request.text):
            return None
        return Near(frame, self._encoder.embed(request.text)[0])

    def nearest(self, near: Near) -> tuple[bytes, float] | None:
        """Return the key and the similarity of the most similar question, if it is similar enough."""
        found = self._frames.get(near.frame)
        if found is None:
            return None
        keys, similarities = found.keys, found.rows[: len(found.keys)] @ near.vector
        best = int(similarities.argmax())
        similarity = float(similarities[best])
        return (keys[best], min(1.0, similarity)) if similarity >= self.settings.similarity else None

    def add(self, near: Near, key: bytes) -> None:
        """Remember a question; the oldest of the frame that was least recently added to makes room."""
        found = self._frames.setdefault(near.frame, _Frame())
        self._frames.move_to_end(near.frame)
        if key in found.keys:
            return
        found.add(key, near.vector)
        self._count += 1
        while self._count > self.settings.entries:
            oldest = next(iter(self._frames))
            self._drop(oldest, self._frames[oldest].keys[0])

    def forget(self, near: Near, key: bytes) -> None:
        """Forget a question whose answer is there no longer."""
        if near.frame in self._frames and key in self._frames[near.frame].keys:
            self._drop(near.frame, key)

    def _drop(self, frame: bytes, key: bytes) -> None:
        self._frames[frame].drop(key)
        self._count -= 1
        if not self._frames[frame].keys:
            del self._frames[frame]


class _Frame:
    """The questions that differ in their text alone: keys, oldest first, and their vectors in the rows of one array."""

    __slots__ = ("keys", "rows")

    def __init__(self) -> None:
        import numpy as np

        self.keys: list[bytes] = []
        self.rows: NDArray[np.float32] = np.zeros((0, 0), np.float32)

    def add(self, key: bytes, vector: NDArray[np.float32]) -> None:
        import numpy as np

        count = len(self.keys)
        if count == len(self.rows):
            more = np.zeros((max(_GROWTH, 2 * count) if count else 1, len(vector)), np.float32)
            if count:
                more[:count] = self.rows[:count]
            self.rows = more
        self.rows[count] = vector
        self.keys.append(key)

    def drop(self, key: bytes) -> None:
        index, count = self.keys.index(key), len(self.keys)
        self.rows[index : count - 1] = self.rows[index + 1 : count]
        del self.keys[index]


class _Encoder:
    """A text encoder that says which texts it would cut."""

    def __init__(self, folder: Path, max_tokens: int) -> None:
        self._whole = TextEncoder(folder / "encoder.onnx", folder / "tokenizer.json", max_tokens)
        self._most = max_tokens

    def fits(self, text: str) -> bool:
        return self._whole.tokens(text) < self._most

    def embed(self, text: str) -> NDArray[np.float32]:
        return self._whole.embed(text)


def open_semantic(settings: SemanticSettings, base: str, made_of: object) -> Semantic:
    """Load the encoder; `made_of` says what the questions were embedded with.

    Raises:
        ConfigError: it is missing or none of its kind.
    """
    return Semantic(settings, _Encoder(Path(base, settings.encoder), settings.max_tokens), made_of)


def _framed(request: Request) -> Request | None:
    """Return the request without its text, where nothing but the text makes it what it is."""
    chat = request.data
    if not isinstance(chat, Chat) or chat.kind != "chat" or chat["tools"] or chat["images"]:
        return None
    *before, last = chat["messages"]
    if last["role"] != "user" or any(message["role"] not in _BEFORE for message in before):
        return None
    content = last.get("content")
    texts = isinstance(content, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in content)
    if not (isinstance(content, str) or texts) or not request.text.strip():
        return None
    blank = Raw(msgspec.json.encode([*before, {**last, "content": ""}]))
    return structs.replace(request, data=Chat({**chat.fields, "messages": blank}))
