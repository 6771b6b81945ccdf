"""Signals from a model that the lab trained: an ONNX file that carries a card of what it takes and says."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec
from msgspec import Struct

from rheostat.errors import ConfigError, Problem
from rheostat.pool.onnx_session import open_session
from rheostat.pool.onnx_tokens import TextEncoder
from rheostat.signals.answer_line import of_answers
from rheostat.signals.base import Scorer, ScorerSettings
from rheostat.signals.feature_line import FeatureLine
from rheostat.signals.onnx_scorer import ScorerError
from rheostat.signals.quantile import Quantiles
from rheostat.types import Request

CARD_KEY: Final = "rheostat"
"""The metadata property of the ONNX file that holds the card as JSON."""
FORMAT: Final = 1


class LearnedCard(Struct, frozen=True, kw_only=True):
    """What a learned file takes and says, and what it was fitted on.

    Args:
        meaning: `gain` (quality of the strong model minus the weak one's), `quality` (expected, one output a model),
            `difficulty` (chance that the small model errs), `weights` (on the simplex) or `probability`.
        features: names of the first columns of its input, as `FeatureLine` reads them.
        embedding: width of the sentence embedding that follows them; 0: none.
        max_tokens: where the encoder cut its texts.
        outputs: names of the output's columns; one output "" is the signal that the config names.
        data_hash, rows, fitted_on: the outcomes table (or file), how many of its rows, and which splits or folds: a figure
            on those rows says nothing.
        quantiles: the output's quantiles at even steps from 0 to 1 on the rows it was fitted on; none: not known.
        notes: what else a reader must know.
    """

    meaning: Literal["gain", "quality", "difficulty", "weights", "probability"]
    features: tuple[str, ...]
    embedding: int = 0
    max_tokens: int = 128
    outputs: tuple[str, ...] = ("",)
    data_hash: str = ""
    rows: int = 0
    fitted_on: str = "train"
    quantiles: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()
    format: int = FORMAT

    def __post_init__(self) -> None:
        if not self.features and not self.embedding:
            raise ValueError("`features` and `embedding` are both empty: the model would take nothing")
        if self.quantiles and (len(self.quantiles) < 2 or any(low > high for low, high in pairwise(self.quantiles))):
            raise ValueError("`quantiles` must be two or more rising numbers")
        if not self.outputs or len(set(self.outputs)) != len(self.outputs):
            raise ValueError(f"`outputs` must name each output once, got {list(self.outputs)}")
        if "" in self.outputs and len(self.outputs) > 1:
            raise ValueError("several `outputs` need a name each")


class LearnedScorerSettings(ScorerSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="learned"):
    """`path` to a file that `rheostat train` wrote; its card says what it takes.

    A file with several outputs (one a model, say) makes the signals `NAME.OUTPUT`; list them as `outputs`. A file that
    takes an embedding needs `encoder`, the folder with `encoder.onnx` and `tokenizer.json` it was trained with.

    With `quantiles` the signal is where the output stands, 0 to 1: among those of the rows it was fitted on (`training`), or
    of about the last thousand requests (`traffic`, which starts from training anew at each start and reload). A cut at 0.8
    then parts off a fifth of the requests; the record holds the value that was used.
    """

    path: str
    encoder: str | None = None
    outputs: tuple[str, ...] = ()
    quantiles: Literal["", "training", "traffic"] = ""

    def signals(self, name: str) -> tuple[str, ...]:
        """Return `name`, or `name.OUTPUT` for each of the outputs."""
        return tuple(f"{name}.{output}" for output in self.outputs) or (name,)

    def open(self, name: str, base: str) -> Scorer:
        """Load the scorer of the signal `name`.

        Raises:
            ConfigError: the file is none of its kind, its outputs are others, or the encoder is missing or another one.
        """
        opened = open_learned(self.path, self.encoder, self.outputs, base)
        if read := [name for name in opened.card.features if of_answers(name)]:
            told = f"{Path(self.path).name} reads {read[0]}, which models' answers give: serve it with `scorer: answers`"
            raise _refusal("scorer", told)
        places = None
        if self.quantiles:
            if len(opened.card.quantiles) < 2 or len(opened.card.outputs) > 1:
                told = f"{Path(self.path).name} has none: only files of one output that were saved with them do"
                raise _refusal("quantiles", told)
            places = Quantiles(opened.card.quantiles, follow=self.quantiles == "traffic")
        line = FeatureLine(opened.card.features)
        return LearnedScorer(self.signals(name), opened.session, line, opened.encoder, places)


class Opened(NamedTuple):
    """A learned file ready to run: its session, its card, and the encoder when it takes an embedding."""

    session: Any
    card: LearnedCard
    encoder: TextEncoder | None


def open_learned(file: str, encoder: str | None, outputs: tuple[str, ...], base: str) -> Opened:
    """Open a learned file and hold what the config says of it against its card.

    Raises:
        ConfigError: the file is none of its kind, its outputs are others, or the encoder is missing or another one.
    """
    path = Path(base, file)
    session = open_session(path, 1, "path")
    card = card_of(session, path.name)
    if outputs != (() if card.outputs == ("",) else card.outputs):
        said = f"outputs: [{', '.join(card.outputs)}]" if card.outputs != ("",) else "no outputs (it has a single one)"
        raise _refusal("outputs", f"{path.name} needs {said}, got {list(outputs)}")
    if not card.embedding:
        if encoder is not None:
            raise _refusal("encoder", f"{path.name} takes no embedding; remove `encoder`")
        return Opened(session, card, None)
    if encoder is None:
        raise _refusal("encoder", f"{path.name} takes an embedding: name the folder with encoder.onnx and tokenizer.json")
    folder = Path(base, encoder)
    made = TextEncoder(folder / "encoder.onnx", folder / "tokenizer.json", card.max_tokens)
    width = made.embed("a").shape[-1]
    if width != card.embedding:
        raise _refusal("encoder", f"its embeddings have {width} numbers, {path.name} takes {card.embedding}")
    return Opened(session, card, made)


class LearnedScorer:
    """Runs the session on one request."""

    def __init__(
        self,
        names: tuple[str, ...],
        session: Any,
        line: FeatureLine,
        encoder: TextEncoder | None,
        places: Quantiles | None = None,
    ) -> None:
        self.names = names
        self._session = session
        self._line = line
        self._encoder = encoder
        self._places = places

    def score(self, request: Request) -> Mapping[str, float]:
        """Return the signals.

        Raises:
            ScorerError: the model failed, or what it said is not finite.
        """
        found = run_learned(self.names, self._session, lambda: self._line.read(request), self._encoder, request.text)
        if self._places is None:
            return found
        return {name: self._places.place(value) for name, value in found.items()}


def run_learned(
    names: tuple[str, ...], session: Any, read: Callable[[], list[float]], encoder: TextEncoder | None, text: str
) -> dict[str, float]:
    """Run a learned file on one row of numbers, with the text's embedding behind them where it takes one.

    Raises:
        ScorerError: the numbers cannot be read, the model failed, or what it said is not finite.
    """
    import numpy as np

    try:
        x = np.array([read()], dtype=np.float32)
        if encoder is not None:
            x = np.concatenate([x, encoder.embed(text)], axis=1)
        values = session.run(None, {"x": x})[0][0].tolist()
    except Exception as error:  # onnxruntime has a class of its own for every reason
        raise ScorerError(f"signal {names[0]}: {type(error).__name__}: {str(error)[:200]}") from error
    if not all(map(math.isfinite, values)):
        raise ScorerError(f"signal {names[0]}: expected finite numbers, got {values}")
    return dict(zip(names, values, strict=True))


def card_of(session: Any, name: str) -> LearnedCard:
    """Return the card an opened file carries, after holding the file's input and output against it.

    Raises:
        ConfigError: there is no card, it cannot be read, or the model has another shape than it says.
    """
    raw = session.get_modelmeta().custom_metadata_map.get(CARD_KEY)
    if raw is None:
        raise _refusal("path", f"{name} carries no card: only files that the lab wrote do (for others: `scorer: onnx`)")
    try:
        card = msgspec.json.decode(raw, type=LearnedCard)
    except msgspec.MsgspecError as error:
        raise _refusal("path", f"the card of {name} cannot be read: {error}") from error
    if card.format != FORMAT:
        raise _refusal("path", f"{name} has format {card.format}, this version reads {FORMAT}: train again")
    inputs, outputs = session.get_inputs(), session.get_outputs()
    shapes = [(each.name, each.type, each.shape[-1] if each.shape else 1) for each in (*inputs, *outputs)]
    wanted = [("x", len(card.features) + card.embedding), (outputs[0].name, len(card.outputs))]
    if (
        len(inputs) != 1
        or len(outputs) != 1
        or not all(
            found == title and kind == "tensor(float)" and (width == right or not isinstance(width, int))
            for (found, kind, width), (title, right) in zip(shapes, wanted, strict=True)
        )
    ):
        told = ", ".join(f"{title} of {width}" for title, width in wanted)
        raise _refusal("path", f"{name} has the inputs and outputs {shapes}, its card says float32 {told}")
    return card


def _refusal(field: str, message: str) -> ConfigError:
    return ConfigError([Problem(field, None, message)])
