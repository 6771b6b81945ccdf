"""What could be decoded of a config, with the means to say what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from rheostat.config.decode import Decoder
from rheostat.config.policies import PolicyReader
from rheostat.config.schema import RouteSettings
from rheostat.errors import Problem
from rheostat.pool import ModelSettings


@dataclass(frozen=True)
class Draft:
    """What could be decoded. Models, routes, signals and budgets map every name in the file to its settings (wrong fields
    at their default), None where nothing is known of them; `policies` holds the good ones."""

    decoder: Decoder
    reader: PolicyReader
    models: Mapping[str, ModelSettings | None]
    routes: Mapping[str, RouteSettings | None]
    signals: Mapping[str, Any]
    budgets: Mapping[str, Any]
    policies: Mapping[str, Any]
    labels: tuple[str, ...]
    task: str
    sections: frozenset[str]
    features: tuple[str, ...]
    base: str
    warnings: list[Problem] = field(default_factory=list)

    def line(self, path: str) -> int:
        """Return the line of a setting, or of the nearest thing around it."""
        lines = self.decoder.lines
        while path and path not in lines:
            path = path.rpartition(".")[0]
        return lines.get(path, 1)

    def wrong(self, path: str, message: str) -> None:
        """Note a mistake."""
        self.decoder.problem(path, self.line(path), message)

    def doubtful(self, path: str, message: str) -> None:
        """Note what works but may not be meant."""
        self.warnings.append(Problem(path, self.line(path), self.decoder.hushed(message)))

    def exists(self, path: str, name: str, known: Iterable[str], what: str) -> None:
        """Note a mistake unless `name` is known."""
        if name not in known:
            self.wrong(path, f"unknown {what} `{name}`; {nearest(name, known)}")


def nearest(name: str, known: Iterable[str]) -> str:
    """Return what to write instead of a name that does not exist."""
    known = list(known)
    near = get_close_matches(name, known, n=1)
    return f"did you mean `{near[0]}`?" if near else f"known: {', '.join(known) or 'none'}"
