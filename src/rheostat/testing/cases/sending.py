"""From a case's words for a request to what goes over the wire to `/v1/predict`."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

from rheostat.testing.cases.client import Sending
from rheostat.testing.cases.form import CaseError, RequestWords
from rheostat.testing.cases.given import FIELD

PREDICT = "/v1/predict"
TEXT = "hello"
TOKEN = "tok "
"""Four characters, about one token."""
_FORCE = "x-force-model"
_FIRST_ID = 100_000
_PARAMETERS = frozenset(("temperature", "top_p", "max_tokens", "seed", "stop", "system", "tools", "response_format"))
_BODIES = ("raw_body", "raw_json", "body_size", "nest_depth")
_TEXTS = ("text", "text_repeat", "tokens", "vector_len")


class Sender:
    """Makes the requests of one case.

    Args:
        session_header: the header that names the session; its value goes to Rheostat's own header as well.
        sessions: values to send in place of those that the case names (see `bind`).
        trap: where the server answers that nobody may call; it stands for `http://trap`.
        seed: of random names.
    """

    def __init__(self, session_header: str | None, sessions: Mapping[str, str], trap: str, seed: int = 0) -> None:
        self._session_header = session_header
        self._sessions = sessions
        self._trap = trap
        self._chance = random.Random(seed)

    def make(self, asked: RequestWords, number: int, index: int) -> tuple[Sending, str]:
        """Return request `number`, the `index`-th of its group, and the number it carries ("" without `unique_id`).

        Raises:
            CaseError: words that do not go together.
        """
        own_id = str(_FIRST_ID + number) if asked.unique_id else ""
        headers = {name: self._sprung(value) for name, value in asked.headers.items()}
        for name, value in asked.headers.items():
            if name.lower() == self._session_header:
                headers["x-rheostat-session"] = self._sessions.get(value, value)
        if asked.key is not None:
            headers["authorization"] = f"Bearer {asked.key}"
        if asked.path is not None and asked.path != PREDICT:
            return Sending(asked.method or "GET", asked.path, headers, cancel_after=asked.cancel_after), own_id
        headers.setdefault("content-type", "application/json")
        body = self._body(asked, number, index, own_id)
        sending = Sending(
            asked.method or "POST", PREDICT, headers, body, chunked=asked.chunked, cancel_after=asked.cancel_after
        )
        return sending, own_id

    def _body(self, asked: RequestWords, number: int, index: int, own_id: str) -> bytes:
        whole = [name for name in _BODIES if getattr(asked, name) is not None]
        texts = [name for name in _TEXTS if getattr(asked, name) is not None]
        if len(whole) > 1 or len(texts) > 1 or (whole and texts):
            raise CaseError(f"a request has one body, not {[*whole, *texts]}")
        raw = asked.raw_body if asked.raw_body is not None else asked.raw_json
        if raw is not None:
            return _as_row(raw).encode("utf-8", "surrogatepass")
        if asked.body_size is not None:
            frame = len(b'{"text":""}')
            return b'{"text":"%s"}' % (b"a" * max(0, asked.body_size - frame))
        if asked.nest_depth is not None:
            return b'{"data":{"a":' + b"[" * asked.nest_depth + b"]" * asked.nest_depth + b"}}"
        body: dict[str, Any] = {"text": self._text(asked, number, own_id)}
        if asked.vector_len is not None:
            body = {"data": {"vector": [asked.fill if asked.fill is not None else 0.0] * asked.vector_len}}
        route = self._route(asked)
        if asked.stream:
            route["stream"] = True
        if route:
            body["route"] = route
        if asked.score_cycle:
            body["meta"] = {FIELD: asked.score_cycle[index % len(asked.score_cycle)]}
        body |= {name: self._sprung(value) for name, value in asked.extra_body.items()}
        return json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")

    def _route(self, asked: RequestWords) -> dict[str, Any]:
        route: dict[str, Any] = {}
        if asked.route is not None:
            route["name"] = asked.route
        if asked.model_random:
            route["name"] = f"model-{self._chance.getrandbits(64):016x}"
        for name, value in asked.headers.items():
            if name.lower() == _FORCE:  # a caller forces a model in the body here, where the header does nothing
                route["force_model"] = value
        return route

    def _text(self, asked: RequestWords, number: int, own_id: str) -> str:
        if own_id:
            return f"number {own_id}"
        if asked.text_unique:
            return f"text {number}"
        if asked.text_repeat is not None:
            return asked.text_repeat.char * asked.text_repeat.n + asked.text_repeat.suffix
        if asked.tokens is not None:
            return TOKEN * asked.tokens
        return TEXT if asked.text is None else asked.text

    def _sprung(self, value: Any) -> Any:
        return value.replace("http://trap", self._trap) if isinstance(value, str) else value


def _as_row(raw: str) -> str:
    """Return a body as it is; one whose text has a model's parameters beside it is the row itself, byte for byte."""
    try:
        pairs = json.loads(raw, object_pairs_hook=list)
    except ValueError:
        return raw
    names = {pair[0] for pair in pairs if isinstance(pair, tuple)} if isinstance(pairs, list) else set()
    return f'{{"data":{raw}}}' if "text" in names and names & _PARAMETERS else raw
