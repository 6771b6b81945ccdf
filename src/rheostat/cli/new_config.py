"""The text of a first config for models that a user has."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from rheostat.errors import BadRequest

_ONNX: Final = (".onnx",)
_PICKLES: Final = (".joblib", ".pkl", ".pickle")
_FEW: Final = 50
"""A label set of more labels is not written out."""


class Columns(NamedTuple):
    """What a labelled file says about the task: its labels, and its feature columns when there is no text."""

    labels: tuple[str, ...] = ()
    features: tuple[str, ...] = ()


class Entry(NamedTuple):
    """One model's lines in the file, without indentation, and its file's name if it is a pickle nobody vouched for."""

    name: str
    lines: tuple[str, ...]
    unvouched: str | None = None


def columns_of(path: str, text_column: str | None, label_column: str) -> Columns:
    """Read labels and features from a labelled file.

    Raises:
        DataError: it cannot be used.
    """
    from rheostat.jobs import Columns as Wanted
    from rheostat.jobs import Example, LabelledSet, Part

    rows = LabelledSet([Part(Path(path))], Wanted(text=text_column, label=label_column))
    survey = rows.survey()
    first = next(item for item in rows if isinstance(item, Example))
    features = tuple(first.data) if isinstance(first.data, dict) else ()
    return Columns(tuple(sorted(survey.labels)), features)


def entry(name: str, target: str, order: int, folder: Path, columns: Columns, trust: bool) -> Entry:
    """Return the config's lines for one model, its kind inferred from what `target` looks like.

    Args:
        order: 0 for the first (cheapest) model, 1 for the next, ...
        folder: where the config will lie; file names are written from there.
        trust: the user vouches for pickles, so that their hash may be written down.

    Raises:
        BadRequest: no such file, or nothing we know.
    """
    cost = f"cost: {10**order}  # what a call costs, in any unit that is the same for all models"
    version = 'version: "1"  # change it whenever the model changes: a tuned policy holds for one version'
    if target.startswith(("http://", "https://")):
        return Entry(name, (*_endpoint(target, columns), version, cost, "timeout: 5s"))
    suffix = Path(target).suffix.lower()
    if suffix in (*_ONNX, *_PICKLES):
        place = Path(target)
        if not place.is_file():
            raise BadRequest(f"--model {name}={target}: there is no file {target}")
        written = os.path.relpath(place.absolute(), folder.absolute())
        if suffix in _ONNX:
            lines = ("backend: onnx", f"path: {_text(written)}", version, cost, *_onnx_needs(written, folder, columns))
            return Entry(name, lines)
        return _pickle(name, place, written, (version, cost, *_features(columns)), trust)
    module, colon, attribute = target.partition(":")
    if colon and all(part.isidentifier() for part in [*module.split("."), *attribute.split(".")]):
        return Entry(name, ("backend: python", f"callable: {_text(target)}  # gets a list of rows, returns as many answers",
                            version, cost))  # fmt: skip
    raise BadRequest(
        f"--model {name}={target}: expected a file ending in {', '.join((*_ONNX, *_PICKLES))}, module:function, or a URL"
    )


def render(entries: Sequence[Entry], columns: Columns, policy_file: str | None = None) -> str:
    """Return the whole file; `policy_file` is written as given."""
    names = [each.name for each in entries]
    parts = [
        "# Made by `rheostat init`. Check it after every change: `rheostat check THIS_FILE --load`",
        "task: classify",
    ]
    if 0 < len(columns.labels) <= _FEW:
        parts.append(f"labels: {_list(columns.labels)}  # every model must know exactly these")
    parts += ["", "models:  # cheapest first"]
    for each in entries:
        parts += [f"  {_text(each.name)}:", *(f"    {line}" for line in each.lines)]
    parts += [
        "",
        "routes:",
        "  default:",
        *_policy(names, policy_file),
        "    deadline: 10s  # a request takes no longer, whatever happens",
    ]
    if columns.labels:
        preset = f"preset: {{label: {_text(columns.labels[0])}}}"
        parts.append(f"    fallback: {{retry: 1}}  # with `{preset}` this is the answer when all models fail")
    parts += [
        "",
        "records: {sqlite: records.sqlite}  # `rheostat explain --last` tells how a request was decided",
        "",
        "server: {host: 127.0.0.1, port: 8080}",
        "",
        "# keys: [{key: ${MY_KEY}, tenant: me}]  # without keys everybody who reaches the port may ask",
        "# admin: {secret: ${ADMIN_SECRET}}  # opens the admin pages on port 9090",
    ]
    return "\n".join(parts) + "\n"


def _policy(names: Sequence[str], policy_file: str | None) -> list[str]:
    if policy_file is not None:
        return [f"    policy: {{file: {_text(policy_file)}}}  # from `rheostat tune`"]
    if len(names) == 1:
        return [f"    policy: {_text(names[0])}  # one model answers everything; a second one makes a cascade"]
    return [
        "    policy:",
        "      # The first model answers when it is sure enough, else the next one is asked. 0.9 is a guess:",
        "      # `rheostat evaluate` and `rheostat tune` find the threshold; then write `policy: {file: tuned.yaml}` here.",
        f"      cascade: {{stages: {_list(names)}, threshold: 0.9, max_escalations: {len(names) - 1}}}",
    ]


def _endpoint(target: str, columns: Columns) -> tuple[str, ...]:
    url, _, model = target.partition("#")
    labels = (f"labels: {_list(columns.labels)}",) if columns.labels else ()
    if "/v1" not in url:
        return ("backend: http", f"url: {_text(url)}", *labels)
    return (
        "backend: openai",
        f"base_url: {_text(url)}",
        f"model: {_text(model)}" if model else "model: default  # EDIT: the model's name at that endpoint",
        *(labels or ('labels: ["yes", "no"]  # EDIT: the labels to choose from',)),
        "logprobs: true  # gives a confidence, where the endpoint can",
    )


def _onnx_needs(written: str, folder: Path, columns: Columns) -> tuple[str, ...]:
    """What the config must add for this file to open: features, labels, or nothing."""
    from rheostat.backends.onnx import OnnxModel
    from rheostat.errors import ConfigError, RheostatError

    for labels in ((), columns.labels):
        try:
            OnnxModel(path=written, features=columns.features, labels=labels).open(str(folder))
        except ConfigError as error:
            if not labels and any(problem.path == "labels" for problem in error.problems):
                continue
            break
        except RheostatError:
            break
        named = (f"labels: {_list(labels)}  # in the order of its outputs",) if labels else ()
        return (*_features(columns), *named)
    return _features(columns)


def _pickle(name: str, place: Path, written: str, rest: tuple[str, ...], trust: bool) -> Entry:
    digest = hashlib.sha256(place.read_bytes()).hexdigest()
    if trust:
        vouched = ("trusted: true  # loading a pickle runs the code in it", f"sha256: {digest}")
        return Entry(name, ("backend: sklearn", f"path: {_text(written)}", *vouched, *rest))
    lines = (
        "backend: sklearn",
        f"path: {_text(written)}",
        "trusted: false  # a pickle runs code when it is loaded: if you made it yourself, say true and add",
        f"# sha256: {digest}",
    )
    return Entry(name, (*lines, *rest), written)


def _features(columns: Columns) -> tuple[str, ...]:
    return (f"features: {_list(columns.features)}",) if columns.features else ()


def _list(values: Sequence[str]) -> str:
    return f"[{', '.join(_text(value) for value in values)}]"


def _text(value: str) -> str:
    """A text as YAML takes it everywhere; quoted unless it is a plain word."""
    plain = value.replace("-", "_").replace("/", "_").replace(".", "_")
    if plain.isascii() and plain.isidentifier() and value.lower() not in _WORDS and value[0] not in "-.":
        return value
    return json.dumps(value, ensure_ascii=False)


_WORDS: Final = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null", "nan", "inf"})


def named_models(pairs: Sequence[str]) -> Mapping[str, str]:
    """Read NAME=TARGET pairs; without a name, the file's own is taken.

    Raises:
        BadRequest: a name twice.
    """
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, target = pair.partition("=")
        if not equals or "/" in name or ":" in name:
            name, target = Path(pair.partition("#")[0].rpartition(":")[2] or pair).stem, pair
        if name in found:
            raise BadRequest(f"--model: two models are named {name!r}; write --model NAME=PATH with names of their own")
        found[name] = target
    return found
