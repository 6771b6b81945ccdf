"""A scikit-learn model from a pickle the operator vouches for."""

from __future__ import annotations

import hashlib
import io
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rheostat.backends.labels import settle_labels
from rheostat.backends.reply import as_reply
from rheostat.errors import ConfigError, ContractError, ModelError, Problem
from rheostat.pool.backend import Backend, ModelSettings, Reply, Row
from rheostat.pool.rows import feature_matrix


class SklearnModel(ModelSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="sklearn"):
    """`path` to a classifier saved by joblib or pickle. Such a file is a program: loading it runs whatever it holds,
    so it is read only with `trusted: true` and the `sha256` of the very file you trust.

    Rows with `features` become a float matrix in that order (missing: NaN); otherwise the model gets each row's text,
    or the row itself where it has none. Labels go by name, `str(class)`.
    """

    path: str
    trusted: bool = False
    sha256: str = ""
    features: tuple[str, ...] = ()

    takes_arrays: ClassVar[bool] = True

    def open(self, base: str) -> Backend:
        """Load the model if it is trusted.

        Raises:
            ConfigError: not trusted, another file than trusted, or unreadable.
            ContractError: it is no classifier, or its labels are others than configured.
        """
        where = pathlib.Path(base, self.path)
        try:
            blob = where.read_bytes()
        except OSError as error:
            raise _refusal("path", f"{self.path} cannot be read: {error.strerror}") from error
        digest = hashlib.sha256(blob).hexdigest()
        if not self.trusted or self.sha256.lower() != digest:
            raise _refusal("sha256" if self.trusted else "trusted", _how_to_make_it_safe(self, digest))
        import joblib  # type: ignore[import-untyped]

        try:
            model = joblib.load(io.BytesIO(blob))
        except Exception as error:  # unpickling may raise anything
            raise _refusal("path", f"{self.path} cannot be loaded: {type(error).__name__}: {error}") from error
        classes = getattr(model, "classes_", None)
        if not hasattr(model, "predict") or classes is None:
            raise ContractError(f"{self.path} holds {type(model).__name__}, expected a fitted classifier")
        labels = settle_labels(self.labels, [str(each) for each in classes], self.path)
        return SklearnClassifier(model, labels or (), self.features)


class SklearnClassifier:
    """Asks a fitted classifier; probabilities where it has them."""

    def __init__(self, model: Any, labels: tuple[str, ...], features: tuple[str, ...]) -> None:
        self.labels: tuple[str, ...] | None = labels
        self._model = model
        self._names = labels
        self._features = features
        self._has_proba = hasattr(model, "predict_proba")

    def predict(self, rows: Sequence[Row]) -> Sequence[Reply]:
        """Answer every row; a row the model cannot take fails alone."""
        try:
            return self._predict(rows)
        except Exception as error:  # the model may raise anything; which row was it?
            if len(rows) > 1:
                return [reply for row in rows for reply in self.predict([row])]
            return [error if isinstance(error, ModelError) else ModelError("crashed", f"{type(error).__name__}: {error}")]

    def close(self) -> None:
        """Nothing to give back."""

    def _predict(self, rows: Sequence[Row]) -> list[Reply]:
        inputs = feature_matrix(rows, self._features) if self._features else [_plain_input(row) for row in rows]
        if not self._has_proba:
            return [as_reply(str(label), self._names) for label in self._model.predict(inputs)]
        table = self._model.predict_proba(inputs).tolist()
        return [as_reply(dict(zip(self._names, line, strict=True)), self._names) for line in table]


def _plain_input(row: Row) -> Any:
    return row["text"] if isinstance(row, Mapping) and isinstance(row.get("text"), str) else row


def _how_to_make_it_safe(settings: SklearnModel, digest: str) -> str:
    if settings.trusted and settings.sha256:
        return f"{settings.path} is not the file you trusted: its sha256 is now {digest}, the config says {settings.sha256}"
    return (
        f"{settings.path} is a pickle, and loading a pickle runs the code in it. Convert the model to ONNX with skl2onnx "
        f"and use backend: onnx; or, if you made this file yourself, set trusted: true and sha256: {digest}"
    )


def _refusal(field: str, message: str) -> ConfigError:
    return ConfigError([Problem(field, None, message)])
