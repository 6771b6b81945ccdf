"""What only llama.cpp's HTTP pages tell, asked once while a model is opened, over a socket that nobody else can reach."""

from __future__ import annotations

import http.client
import json
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

_PATIENCE_S = 30.0


@contextmanager
def engine_socket() -> Iterator[str]:
    """Give the path for a socket, in a folder that only this user may enter and that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="rheostat-", ignore_cleanup_errors=True) as folder:
        yield f"{folder}/engine.sock"


def answer_tokens(path: str, chat: Sequence[Mapping[str, Any]], answers: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """Return the tokens of each of `answers`, as the model would write them after `chat`.

    Raises:
        ValueError: the chat template refuses the chat, or the chance of an answer cannot be known.
    """
    prompt = str(_page(path, "/apply-template", {"messages": chat})["prompt"])
    before = _tokens(path, prompt)
    found: dict[tuple[int, ...], str] = {}
    for answer in answers:
        whole = _tokens(path, prompt + answer)
        joined = whole[: len(before)] == before and len(whole) > len(before)
        pieces = whole[len(before) :] if joined else _tokens(path, answer, special=False)
        if any(isinstance(piece["piece"], list) for piece in pieces):
            told = f"the model writes {answer!r} in parts of characters, whose chances llama.cpp does not tell"
            raise ValueError(f"{told}: choose a label in letters that the model knows")
        ids = tuple(piece["id"] for piece in pieces)
        if not ids or ids in found:
            raise ValueError(f"the model writes {answer!r} and {found.get(ids, '')!r} alike: choose other labels")
        found[ids] = answer
    return tuple(found)


def chat_tokens(path: str, chat: Sequence[Mapping[str, Any]], said: str) -> tuple[int, ...]:
    """Return the tokens of a chat and of the beginning of its answer.

    Raises:
        ValueError: the chat template refuses the chat.
    """
    prompt = str(_page(path, "/apply-template", {"messages": chat})["prompt"])
    return tuple(token["id"] for token in _tokens(path, prompt + said))


def _tokens(path: str, text: str, *, special: bool = True) -> list[dict[str, Any]]:
    asked = {"content": text, "add_special": special, "parse_special": special, "with_pieces": True}
    return list(_page(path, "/tokenize", asked)["tokens"])


def _page(path: str, page: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
    connection = _Connection(path)
    try:
        connection.request("POST", page, json.dumps(body), {"content-type": "application/json"})
        said = json.loads(connection.getresponse().read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ValueError(f"llama.cpp does not answer {page}: {error}") from None
    finally:
        connection.close()
    if "error" in said:
        raise ValueError(f"its chat template refuses the prompt: {str(said['error'].get('message'))[:300]}")
    return dict(said)


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_PATIENCE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_PATIENCE_S)
        self.sock.connect(self._path)
