"""The face of one page of a language model's API: how a body becomes a row, and an answer or an error what its clients read.

Everything between the two (keys, limits, decisions, streams, records) is the same for all pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import msgspec
from msgspec import Raw

from rheostat.engine.engine import Served
from rheostat.errors import BadRequest
from rheostat.gateway.answer import Headers, Page, encode, retry_after
from rheostat.gateway.body import malformed
from rheostat.gateway.chat_answer import DONE, TextChunks, chat_error, chunks_of, completion_of
from rheostat.pool.backend import Piece
from rheostat.types import Chat

_fields = msgspec.json.Decoder(dict[str, Raw]).decode
CLOSING: Headers = [(b"connection", b"close")]


class Pieces(Protocol):
    """Makes the events of one streamed answer."""

    def piece(self, piece: Piece) -> bytes:
        """Return what a piece becomes; may be empty."""

    def end(self) -> bytes:
        """Return what ends an answer that came in pieces."""

    def whole(self, served: Served) -> bytes:
        """Return all events of an answer that came whole."""


class Face:
    """Conversations in OpenAI's form; other pages say what differs there."""

    page: ClassVar[str] = "/v1/chat/completions"
    row: ClassVar[type[Chat]] = Chat
    streams: ClassVar[bool] = True
    id_header: ClassVar[bytes] = b"x-request-id"

    def read(self, body: bytes) -> tuple[Chat, Mapping[str, Any]]:
        """Return the row, and what rules read as `meta`.

        Raises:
            BadRequest: with the reason.
        """
        param: str | None = None
        try:
            fields = _fields(body)
            param = getattr(self.row, "field", "messages")
            row = self.row(fields)
            param = None
            meta = row.asks("metadata")
            if not self.streams and row.asks("stream") is True:
                raise BadRequest("the answers of this page are not streamed; leave `stream` out", "stream")
        except msgspec.ValidationError:
            raise BadRequest(
                f"the body is a JSON object with `model` and `{getattr(self.row, 'field', 'messages')}`"
            ) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise malformed(body, error) from None
        except RecursionError:
            raise BadRequest("the JSON is nested too deep") from None
        except ValueError as error:
            raise BadRequest(str(error), param) from None
        return row, meta if isinstance(meta, dict) else {}

    def answer(self, served: Served, row: Chat) -> bytes:  # noqa: ARG002 - for the pages that need it
        """Return the body of an answer.

        Raises:
            RheostatError: nobody answered, or not with what this page gives.
        """
        return completion_of(served)

    def pieces(self, row: Chat, known_id: str, created: int) -> Pieces:
        """Return what makes the events of a streamed answer."""
        told = row.asks("stream_options")
        usage = isinstance(told, dict) and told.get("include_usage") is True
        return _ChatPieces(TextChunks(known_id, row.asks("model"), created), usage=usage)

    def error(self, error: Exception, known_id: str) -> tuple[Any, int]:
        """Return the body of an error, and its status."""
        return chat_error(error, known_id)

    def error_event(self, error: Exception, known_id: str) -> bytes:
        """Return the event of an error that ends a stream."""
        return b"data: %b\n\n" % encode(self.error(error, known_id)[0])

    def error_page(self, error: Exception, known_id: str, headers: Headers) -> Page:
        """Return an error as a whole response."""
        told, status = self.error(error, known_id)
        extra = [*self.named(known_id), *headers]
        wait = retry_after(error, status)
        if wait is not None:
            extra.append((b"retry-after", wait))
        if status == 401:
            extra.append((b"www-authenticate", b"Bearer"))
        return Page(status, encode(told), extra)

    def named(self, known_id: str) -> Headers:
        """Return the headers with the request's id: ours, and the one that the clients of this page show."""
        value = known_id.encode()
        return [(b"x-rheostat-request-id", value), (self.id_header, value)]


class _ChatPieces:
    def __init__(self, made: TextChunks, *, usage: bool) -> None:
        self._made = made
        self._usage = usage

    def piece(self, piece: Piece) -> bytes:
        return piece.chunk or self._made.text(piece.text)

    def end(self) -> bytes:
        return self._made.end() + DONE

    def whole(self, served: Served) -> bytes:
        return chunks_of(completion_of(served), usage=self._usage) + DONE
