"""A model behind a plain JSON endpoint."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from rheostat.backends.labels import settle_labels
from rheostat.backends.openai import answer_each, chat_text, read_chat, streamed
from rheostat.backends.reply import as_reply, bad_output
from rheostat.backends.secrets import masked_url
from rheostat.backends.upstream import StatusKind, Upstream, encode
from rheostat.errors import ConfigError, ModelError, Problem
from rheostat.pool.backend import ModelSettings, Piece, RemoteBackend, Reply, Row
from rheostat.types.duration import Duration


class HttpModel(ModelSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="http"):
    """Posts `{"data": row}`, with `meta` beside it when it is set, to `url` and reads `{label, confidence, scores?}`.

    Also read: `values` (scores by label), and a chat completion whose text is the label. A confidence that is none is
    dropped; an empty answer is `bad_output`. `api_key` is sent as a bearer token, `headers` as they are. `parallel`
    rows of one call are asked at a time. After a 429 or 5xx with Retry-After the model is left alone for that time, at
    most `max_retry_after`. `on_status` says what a status means, by its kind of failure, where the usual table does not fit.
    """

    url: str
    api_key: str = ""
    headers: Mapping[str, str] = {}
    meta: Mapping[str, Any] = {}
    parallel: int = 8
    max_retry_after: Duration = Duration(60.0)
    on_status: Mapping[int, StatusKind] = {}

    @property
    def rows_together(self) -> bool:
        """False: a call carries one row."""
        return False

    def open(self, base: str) -> RemoteBackend:  # noqa: ARG002
        """Prepare the endpoint; nothing is sent yet.

        Raises:
            ConfigError: the URL or a number cannot be used.
        """
        if not 1 <= self.parallel <= 1024:
            raise ConfigError([Problem("parallel", None, f"expected 1 to 1024, got {self.parallel}")])
        headers = dict(self.headers)
        if self.api_key:
            headers["authorization"] = f"Bearer {self.api_key}"
        upstream = Upstream(
            self.url, headers, self.max_retry_after, "url", on_status=self.on_status, resend=not self.side_effects
        )
        return HttpClassifier(upstream, self.meta, settle_labels(self.labels, None, "the endpoint"), self.parallel)

    def __repr__(self) -> str:
        return f"HttpModel(url={masked_url(self.url)!r}, labels={self.labels!r})"


class HttpClassifier:
    """Asks once a row."""

    def __init__(self, upstream: Upstream, meta: Mapping[str, Any], labels: tuple[str, ...] | None, parallel: int) -> None:
        self.labels = labels
        self._upstream = upstream
        self._meta = {"meta": meta} if meta else {}
        self._parallel = parallel

    async def apredict(self, rows: Sequence[Row], timeout_s: float) -> Sequence[Reply]:
        """Answer every row within `timeout_s` seconds; each fails alone."""
        return await answer_each(self._one, rows, timeout_s, self._parallel)

    def astream(self, row: Row, timeout_s: float) -> AsyncIterator[Piece]:
        """Yield the answer to one row as it comes."""
        body = encode({"data": row, **self._meta, "stream": True})
        return streamed(self._upstream, body, timeout_s, lambda answer: read_answer(answer, self.labels))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._upstream.aclose()

    async def _one(self, row: Row, timeout_s: float) -> Reply:
        answer = await self._upstream.ask(encode({"data": row, **self._meta}), timeout_s)
        return self._upstream.hide(read_answer(answer, self.labels))


def read_answer(answer: Any, labels: Sequence[str] | None) -> Reply:
    """Read what the endpoint said."""
    if not isinstance(answer, Mapping):
        return bad_output('{"label": ..., "confidence": ...}', answer)
    if "choices" in answer:
        if labels:
            return read_chat(answer, labels)
        text = chat_text(answer)
        return text if isinstance(text, ModelError) else as_reply(text.strip(), None)
    if "values" in answer:
        return as_reply({"label": answer.get("label"), "scores": answer["values"]}, labels)
    if answer.get("label") in (None, "", [], {}) and not answer.get("scores"):  # 0 and false are names of classes
        return bad_output('{"label": ..., "confidence": ...}', answer)
    return as_reply(
        {
            "label": answer.get("label"),
            "confidence": answer.get("confidence"),
            "scores": answer.get("scores"),
            "output": answer.get("output"),
        },
        labels,
    )
