"""`POST /v1/messages`: conversations as Anthropic's clients hold them, over models that speak OpenAI's form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from rheostat.engine.engine import Served
from rheostat.errors import BadRequest
from rheostat.gateway.answer import encode
from rheostat.gateway.body import malformed
from rheostat.gateway.chat_answer import completion_of
from rheostat.gateway.face import Face, Pieces
from rheostat.gateway.messages_answer import message_of, messages_error
from rheostat.gateway.messages_body import read_messages
from rheostat.gateway.messages_chat import chat_of
from rheostat.gateway.messages_events import MessageEvents
from rheostat.types import Chat


class MessagesFace(Face):
    """Conversations in Anthropic's form."""

    page = "/v1/messages"
    id_header = b"request-id"

    def read(self, body: bytes) -> tuple[Chat, Mapping[str, Any]]:
        """Return the conversation in OpenAI's form, and what rules read as `meta`.

        Raises:
            BadRequest: with the reason; a field that cannot be carried over is named.
        """
        try:
            asked = read_messages(body)
            row = chat_of(asked)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise malformed(body, error) from None
        except RecursionError:
            raise BadRequest("the JSON is nested too deep") from None
        except ValueError as error:
            raise BadRequest(str(error), "messages") from None
        user = asked.metadata.user_id if asked.metadata is not None else None
        return row, {} if user is None else {"user_id": user}

    def answer(self, served: Served, row: Chat) -> bytes:
        """Return the message of the model that answered."""
        return message_of(completion_of(served), row.asks("stop") or ())

    def pieces(self, row: Chat, known_id: str, created: int) -> Pieces:  # noqa: ARG002 - Anthropic's form has no such time
        """Return what makes the events of a streamed answer."""
        return MessageEvents(known_id, row.asks("model"), row.asks("stop") or ())

    def error(self, error: Exception, known_id: str) -> tuple[Any, int]:
        """Return the body of an error, and its status."""
        return messages_error(error, known_id)

    def error_event(self, error: Exception, known_id: str) -> bytes:
        """Return the event of an error that ends a stream."""
        return b"event: error\ndata: %b\n\n" % encode(self.error(error, known_id)[0])
