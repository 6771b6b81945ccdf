"""A model in an ONNX file, run by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from rheostat.backends.labels import settle_labels
from rheostat.backends.onnx_outputs import Output, choose_output, read_mappings, read_matrix
from rheostat.backends.reply import as_reply
from rheostat.backends.row_batches import answered
from rheostat.errors import ConfigError, ContractError, ModelError, Problem
from rheostat.pool.backend import Backend, ModelSettings, Reply, Row
from rheostat.pool.onnx_session import named_labels, open_session
from rheostat.pool.onnx_tokens import mean_pool, token_input, token_vectors
from rheostat.pool.preparing import Ready

if TYPE_CHECKING:
    from rheostat.backends.onnx_inputs import Input

_ORDER_PROBES = ("", "good", "bad", "no", "the quick brown fox", "很好", "1234", "free money now!!!")


class OnnxModel(ModelSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="onnx"):
    """`path` to an ONNX classifier. What it takes is read from the file:

    - a string tensor: the row's text (tf-idf pipelines from skl2onnx);
    - numbers with `features`: a mapping of named features, missing ones NaN; without: a list of numbers, or the array that
      `prepare` made of an image;
    - token ids: give `tokenizer` (a tokenizer.json); texts are cut at `max_length` tokens.

    `output` says whether the numbers are `probabilities` or `logits`. With `head`, a second ONNX file, `path` is an
    encoder whose mean-pooled, length-1 embedding the head classifies. Labels come from `<path>.json` (`{"labels":
    [...]}`), from the file's metadata or from the config, in the order of the outputs. `threads` compute one call.
    Up to `chunk` rows go through the file at a time; an 8-bit file made by dynamic quantisation scales its numbers by what
    else goes with a row and needs `chunk: 1`. With `share`, weights in an external-data file beside `path` are mapped as
    they are: models and processes that name the same file have it in memory once, but calls of several rows take up to two
    and a half times as long, as ONNX Runtime cannot arrange the weights for speed.
    """

    path: str
    tokenizer: str | None = None
    features: tuple[str, ...] = ()
    output: Literal["probabilities", "logits"] = "probabilities"
    head: str | None = None
    threads: int = 1
    chunk: int = 64
    max_length: int = 256
    share: bool = False

    takes_arrays: ClassVar[bool] = True

    def open(self, base: str) -> Backend:
        """Load the model.

        Raises:
            ConfigError: a file is missing or is none of its kind; no code in it is run.
            ContractError: its labels are others than configured, or in another order than the model's own answers.
        """
        if self.threads < 1:
            raise _refusal("threads", f"expected 1 or more, got {self.threads}")
        if self.chunk < 1:
            raise _refusal("chunk", f"expected 1 or more rows, got {self.chunk}")
        if self.max_length < 2:
            raise _refusal("max_length", f"expected 2 or more tokens, got {self.max_length}")
        from rheostat.backends.onnx_inputs import plain_input

        path = Path(base, self.path)
        session = open_session(path, self.threads, "path", self.share)
        if self.tokenizer is not None:
            source: Input = token_input(Path(base, self.tokenizer), session, self.max_length)
        else:
            source = plain_input(session, self.features)
        head = None if self.head is None else open_session(Path(base, self.head), self.threads, "head")
        last, last_path = (session, path) if head is None else (head, Path(base, self.head or ""))
        output = choose_output(last)
        labels = settle_labels(self.labels, named_labels(last_path, last), f"{last_path.name} or its label list")
        _check_shape(session if head is None else head, output, labels, head is not None)
        model = OnnxClassifier(session, head, source, output, labels, self.output == "logits", self.chunk)
        model.check_label_order()
        return model


class OnnxClassifier:
    """Runs one session, or an encoder and its head, over batches of rows of like size."""

    def __init__(
        self,
        session: Any,
        head: Any,
        source: Input,
        output: Output,
        labels: tuple[str, ...] | None,
        logits: bool,
        chunk: int,
    ) -> None:
        self.labels = labels
        self.probes = source.probes
        self._session = session
        self._head = head
        self._source = source
        self._output = output
        self._logits = logits
        self._chunk = chunk
        self._trunk_output = None if head is None else token_vectors(session)
        self._head_input = None if head is None else head.get_inputs()[0].name

    def predict(self, rows: Sequence[Row]) -> Sequence[Reply]:
        """Answer every row; a row the model cannot take fails alone."""
        return answered(rows, self._source, self._chunk, self._run)

    def prepare(self, row: Row) -> Ready:
        """Return the row in the model's terms.

        Raises:
            ModelError: `input_refused`.
        """
        return Ready(self._source.prepare(row))

    def close(self) -> None:
        """Drop the sessions; calls under way keep theirs."""
        self._session = self._head = None

    def check_label_order(self) -> None:
        """Hold the label the file itself answers against the label list, on a few texts or vectors.

        Raises:
            ContractError: they differ, so the list is in another order than the outputs.
        """
        says_labels = self._head is None and self._output.kind == "matrix" and self._output.label_name is not None
        if not says_labels or not self.labels:
            return
        for probe in _ORDER_PROBES if self.probes is None else self.probes:
            try:
                feed = self._source.feed([self._source.prepare(probe)])
                said, values = self._session.run([self._output.label_name, self._output.name], feed)
            except Exception:  # a model that cannot take the probe says so in the contract check
                return
            reply = read_matrix(values, self.labels, self._logits)[0]
            if isinstance(reply, ModelError) or reply.scores is None or str(said[0]) not in reply.scores:
                continue
            if reply.scores[reply.label] - reply.scores[str(said[0])] > 1e-6:
                raise ContractError(
                    f"labels {list(self.labels)} are not in the order of the model's outputs: it answers {str(said[0])!r} "
                    f"where the list says {reply.label!r}; write them in the order of the classes it was trained with"
                )

    def _run(self, items: Sequence[Any]) -> list[Reply]:
        feed = self._source.feed(items)
        session, head, output = self._session, self._head, self._output
        if session is None:
            raise ModelError("unavailable", "the model is closed")
        if head is None:
            (values,) = session.run([output.name], feed)
        else:
            (hidden,) = session.run([self._trunk_output], feed)
            (values,) = head.run([output.name], {self._head_input: mean_pool(hidden, feed.get("attention_mask"))})
        if output.kind == "mappings":
            return read_mappings(values, self.labels)
        if output.kind == "label":
            return [as_reply(str(value), self.labels) for value in values.reshape(-1).tolist()]
        return read_matrix(values, self.labels or (), self._logits)


def _check_shape(session: Any, output: Output, labels: tuple[str, ...] | None, is_head: bool) -> None:
    if output.kind != "matrix":
        return
    rank = next(len(each.shape) for each in session.get_outputs() if each.name == output.name)
    if rank > 2 and not is_head:
        raise _refusal("head", f"output {output.name!r} has {rank} dimensions, as an encoder's: name a head")
    if not labels:
        where = "list them in the order of its outputs, here or in <path>.json"
        raise _refusal("labels", f"the file names none: {where}")
    if output.width not in (None, len(labels)) and not (output.width == 1 and len(labels) == 2):
        raise ContractError(f"labels: {len(labels)} named, the model has {output.width} outputs")


def _refusal(field: str, message: str) -> ConfigError:
    return ConfigError([Problem(field, None, message)])
