"""`POST /v1/completions` and `POST /v1/embeddings`: texts to go on with and texts to embed, in OpenAI's form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from rheostat.backends.chat_relay import framed
from rheostat.engine.engine import Served
from rheostat.errors import NoAnswer, RheostatError
from rheostat.gateway.answer import encode
from rheostat.gateway.chat_answer import DONE
from rheostat.gateway.face import Face, Pieces
from rheostat.pool.backend import Piece
from rheostat.types import Chat
from rheostat.types.prompt import Prompt, Texts
from rheostat.types.text import well_formed


class CompletionFace(Face):
    """How texts go on."""

    page = "/v1/completions"
    row = Prompt

    def answer(self, served: Served, row: Chat) -> bytes:
        """Return the completion of the model that answered, byte for byte, or one made of a preset, for each text."""
        said = served.prediction
        if said is None:
            raise served.error or RheostatError("neither an answer nor an error")
        if isinstance(said.output, bytes):
            return said.output
        record = served.record
        text = well_formed(said.label)
        choices = [{"text": text, "index": index, "logprobs": None, "finish_reason": "stop"} for index in range(row.choices)]
        return encode({
            "id": f"cmpl-{record.id}", "object": "text_completion", "created": int(record.wall),
            "model": record.selected_model, "choices": choices,
        })  # fmt: skip

    def pieces(self, row: Chat, known_id: str, created: int) -> Pieces:  # noqa: ARG002 - every piece has a chunk
        """Return what makes the events of a streamed answer."""
        told = row.asks("stream_options")
        return _TextPieces(self, row, usage=isinstance(told, dict) and told.get("include_usage") is True)


class EmbeddingFace(Face):
    """The vectors of texts."""

    page = "/v1/embeddings"
    row = Texts
    streams = False

    def answer(self, served: Served, row: Chat) -> bytes:  # noqa: ARG002
        """Return the vectors of the model that answered, byte for byte.

        Raises:
            NoAnswer: only a preset was left, which is no vector.
        """
        said = served.prediction
        if said is None:
            raise served.error or RheostatError("neither an answer nor an error")
        if not isinstance(said.output, bytes):
            raise NoAnswer("no model could answer, and the preset of the route is no vector")
        return said.output


class _TextPieces:
    def __init__(self, face: CompletionFace, row: Chat, *, usage: bool) -> None:
        self._face = face
        self._row = row
        self._usage = usage

    def piece(self, piece: Piece) -> bytes:
        return piece.chunk

    def end(self) -> bytes:
        return DONE

    def whole(self, served: Served) -> bytes:
        """Return a chunk with everything, and with `usage` one that tells it, where the model did."""
        said: dict[str, Any] = msgspec.json.decode(self._face.answer(served, self._row))
        told: Mapping[str, Any] | None = said.pop("usage", None)
        events = [said]
        if self._usage and told is not None:
            events.append({**said, "choices": [], "usage": told})
        return b"".join(framed(encode(event)) for event in events) + DONE
