"""The demo's config: the trained models and their routes as a file that a person reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from rheostat.demo.data import LABELS
from rheostat.demo.train import Tier
from rheostat.pool import ModelSettings

ORDER = ("words", "fast", "large")
"""The models, cheapest first."""

_TIERS = {"words": "rules", "fast": "fast", "large": "large"}
_WHAT = {
    "words": "a word list: adds up how good and bad the words are",
    "fast": "a linear model over pieces of words and pairs of them, trained here",
    "large": "a small transformer that reads the whole sentence, with a head trained here",
}
_MEANING = {
    "lexicon": "words, each with how good or bad it is",
    "cuts": "a score below 0 is negative, the rest positive",
    "default": "no known word: a guess, and it says so",
    "tokenizer": "cuts a text into pieces of words",
    "head": "says what the encoder's picture of a sentence means",
    "chunk": "one text at a time, as 8-bit files need it",
    "calibration": "learned on dev: how often it is right when it says so",
    "lighter": "answers when this one fails",
    "cost": "CPU milliseconds for one sentence, measured on this machine",
}

_HEAD = """\
# Made by `rheostat demo`: three models for one task, and who decides which of them answers.
# Check it after a change: rheostat check {path} --load
# What every word means: docs/reference/config.md

task: classify
labels: [{labels}]

models:  # from cheap to dear
"""
_TAIL = """
records:
  sqlite: records.sqlite  # every request with how it was decided; `rheostat explain` tells it in words
  input: raw              # keep the text itself too, which you may not want with texts of real people

server: {host: 127.0.0.1, port: 8080}
"""


def pool_settings(tiers: Mapping[str, Tier]) -> dict[str, ModelSettings]:
    """Return the models' settings by name, cheapest first; each one's cost is the CPU time that was measured."""
    found: dict[str, ModelSettings] = {}
    before: str | None = None
    for name in ORDER:
        tier = tiers[_TIERS[name]]
        cost = float(f"{tier.cpu_ms:.3g}")
        found[name] = msgspec.structs.replace(tier.settings, cost=cost, tier=len(found), lighter=before)
        before = name
    return found


def write_config(path: Path, models: Mapping[str, ModelSettings], policies: Mapping[str, str]) -> None:
    """Write the config.

    Args:
        models: by name, cheapest first; each also gets a route that asks only it.
        policies: policy files by the route they decide; with none, the default route asks the fast model.
    """
    parts = [_HEAD.format(path=path, labels=", ".join(LABELS))]
    for name, settings in models.items():
        parts.append(f"  {name}:  # {_WHAT[name]}\n")
        parts += [f"    {line}\n" for line in _lines(settings)]
    parts.append('\nroutes:  # a request names one: {"data": ..., "route": {"name": "large"}}\n')
    width = max(len(name) for name in (*models, *policies, "default")) + 1
    if not policies:
        parts.append(f"  {'default:':<{width}} {{policy: fast}}  # until a policy is tuned\n")
    parts += [f"  {f'{name}:':<{width}} {{policy: {{file: {file}}}}}\n" for name, file in policies.items()]
    parts += [f"  {f'{name}:':<{width}} {{policy: {name}}}\n" for name in models]
    parts.append(_TAIL)
    path.write_text("".join(parts), encoding="utf-8")


def _lines(settings: ModelSettings) -> list[str]:
    """The backend's own settings first, then what every model has; what stands at its default is left out."""
    common = {info.name for info in msgspec.structs.fields(ModelSettings)}
    fields = sorted(msgspec.structs.fields(settings), key=lambda info: info.name in common)
    lines = [f"backend: {settings.__struct_config__.tag}"]
    for info in fields:
        value = getattr(settings, info.name)
        if value not in (info.default, ()) and value != {}:
            lines.append(f"{info.encode_name}: {_flow(value)}")
    widest = max(len(line) for line in lines if line.partition(":")[0] in _MEANING and len(line) < 60)
    told = ((line, _MEANING.get(line.partition(":")[0])) for line in lines)
    return [f"{line:<{widest}}  # {meaning}" if meaning else line for line, meaning in told]


def _flow(value: Any) -> str:
    import yaml

    text: str = yaml.safe_dump(_set(msgspec.to_builtins(value)), default_flow_style=True, sort_keys=False, width=10_000)
    return text.removesuffix("...\n").strip()


def _set(value: Any) -> Any:
    """A value without the parts that are not set."""
    if isinstance(value, dict):
        return {name: _set(part) for name, part in value.items() if part is not None}
    return [_set(part) for part in value] if isinstance(value, list | tuple) else value
