"""A fixed answer, with parts of the request filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rheostat.backends.labels import settle_labels
from rheostat.errors import ConfigError, Problem
from rheostat.pool.backend import Backend, ModelSettings, Reply, Row
from rheostat.types import Prediction, text_of

_PLACE = re.compile(r"\{([A-Za-z_][\w-]*(?:\.[\w-]+)*)\}")
_LONGEST = 2_000


class TemplateModel(ModelSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="template"):
    """Always answers `label` with `confidence` (0 to 1, or null).

    `template` is its output: `{text}` stands for the row's text, `{name}` and `{name.part}` for a field of the row.
    Only mappings are looked into, never attributes; what is not there becomes nothing; a value is cut at 2,000
    characters.
    """

    label: str
    template: str = ""
    confidence: float | None = 1.0

    def open(self, base: str) -> Backend:  # noqa: ARG002
        """Check the settings.

        Raises:
            ConfigError: no label, or a confidence outside [0, 1].
            ContractError: the label is not among those configured.
        """
        if not self.label.strip():
            raise ConfigError([Problem("label", None, "expected a label that is not empty")])
        if self.confidence is not None and not 0.0 <= self.confidence <= 1.0:
            raise ConfigError([Problem("confidence", None, f"expected 0 to 1, got {self.confidence}")])
        if self.labels and self.label not in self.labels:
            raise ConfigError([Problem("label", None, f"{self.label!r} is none of the labels {list(self.labels)}")])
        return Template(self, settle_labels(self.labels, None, "the template"))


class Template:
    """Fills the template."""

    def __init__(self, settings: TemplateModel, labels: tuple[str, ...] | None) -> None:
        self.labels: tuple[str, ...] | None = labels or (settings.label,)
        self.probes = None
        self._settings = settings

    def predict(self, rows: Sequence[Row]) -> Sequence[Reply]:
        """Answer every row."""
        return [self._one(row) for row in rows]

    def close(self) -> None:
        """Nothing to give back."""

    def _one(self, row: Row) -> Prediction:
        settings = self._settings
        output = _PLACE.sub(lambda place: _value(row, place[1]), settings.template) if settings.template else None
        return Prediction(settings.label, settings.confidence, None, output)


def _value(row: Row, path: str) -> str:
    if path == "text":
        return text_of(row)[:_LONGEST]
    found: Any = row
    for part in path.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return "" if found is None else str(found)[:_LONGEST]
