"""From a file to a config that is known to make sense, or to every mistake in it at once."""

from __future__ import annotations

import hashlib
import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from rheostat.config.check import check
from rheostat.config.decode import BAD, Decoder
from rheostat.config.document import UNKNOWN, Node, read_bytes, read_document
from rheostat.config.draft import Draft
from rheostat.config.masking import SHORTEST, secrets_in
from rheostat.config.parts import Parts, chosen, places
from rheostat.config.policies import PolicyReader
from rheostat.config.schema import Config
from rheostat.errors import ConfigError, Problem
from rheostat.policies import Policy, Rule
from rheostat.pool import ModelSettings
from rheostat.signals.base import ScorerSettings


class Loaded(Struct, frozen=True, kw_only=True):
    """A config that was read and checked.

    `path` is the file, `base` its folder (relative paths start there), `text` its source with variables unreplaced.
    `version` names the content of the file and its policy files (12 hex digits). `policies` and `policy_versions` are by
    route: a policy file's version, or a hash of what stands in the config. `secrets` are texts that no output may show.
    `files` are all files that were read, `lines` the line of every setting, `warnings` what works but may not be meant.
    `sources` is what was in the files: the config's own under the empty name, policy files by their name as written.
    """

    config: Config
    path: str
    base: str
    version: str
    text: str
    policies: Mapping[str, Policy]
    policy_versions: Mapping[str, str]
    secrets: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    lines: Mapping[str, int] = {}
    warnings: tuple[Problem, ...] = ()
    sources: Mapping[str, bytes] = {}

    def __repr__(self) -> str:
        return f"Loaded({self.path!r}, version={self.version!r})"

    def placed(self, prefix: str, problems: Iterable[Problem]) -> list[Problem]:
        """Return problems that name a field of the part at `prefix` (such as `models.fast`) with full path and line."""
        found = []
        for problem in problems:
            path = f"{prefix}.{problem.path}" if problem.path else prefix
            line = problem.line if problem.line is not None else self.lines.get(path, self.lines.get(prefix))
            found.append(Problem(path, line, problem.message))
        return found


class Reading(Struct, frozen=True):
    """What came of reading a file: `loaded` or `error`; `files` and their `content` (hash) as they were then."""

    loaded: Loaded | None
    error: ConfigError | None
    files: tuple[str, ...]
    content: str


def load_config(
    path: str, env: Mapping[str, str] | None = None, parts: Parts | None = None, kept: Mapping[str, bytes] | None = None
) -> Loaded:
    """Read and check one config file.

    Args:
        path: the YAML file; relative paths in it start from its folder.
        env: what `${NAME}` is taken from; default: the process's environment.
        parts: the backends, scorers and text features to choose from; default: those that come with the package.
        kept: what was in the files of an earlier version (`Loaded.sources`), to read that instead of the files.

    Raises:
        ConfigError: with every problem found, in file order.
    """
    reading = read_config(path, env, parts, kept)
    if reading.loaded is None:
        raise reading.error or ConfigError([Problem("", None, "cannot be read")], path)
    return reading.loaded


def read_config(
    path: str, env: Mapping[str, str] | None = None, parts: Parts | None = None, kept: Mapping[str, bytes] | None = None
) -> Reading:
    """Like load_config, but with the error as a value, and with the files that were looked at."""
    try:
        blob = read_bytes(path) if kept is None else kept[""]
        text = blob.decode("utf-8-sig")
    except OSError as error:
        return _failed(path, [Problem("", None, f"cannot be read: {error.strerror or error}")])
    except UnicodeDecodeError as error:
        line = blob.count(b"\n", 0, error.start) + 1
        return _failed(path, [Problem("", line, "not UTF-8 text; save the file as UTF-8")], blob)
    base = str(pathlib.Path(path).absolute().parent)
    document = read_document(text, os.environ if env is None else env)
    root = document.root
    if root is None or not isinstance(root.value, dict):
        wrong = f"expected a mapping with models and routes, got {root.shown()}" if root is not None else ""
        return _failed(path, document.problems or [Problem("", 1, wrong)], blob)
    known = parts or Parts.builtin()
    reader = PolicyReader(base, kept)
    special = {
        Policy: reader.read,
        Rule: reader.read_rule,
        ModelSettings: chosen(ModelSettings, known.backends),
        ScorerSettings: chosen(ScorerSettings, known.scorers),
    }
    decoder = Decoder(special, lambda: places(known))
    decoder.problems += document.problems
    secrets = secrets_in(root, document.variables)
    decoder.hidden = _hidden(document.variables, secrets)
    decoder.lines[""] = root.line
    config = decoder.decode(root, Config, "")
    policies = _policies(decoder, reader, root)
    warnings = check(_draft(decoder, reader, root, policies, known, base))
    files = (path, *(str(pathlib.Path(base, name)) for name in reader.files))
    content = _hash(blob, *reader.files.values())
    if decoder.problems or config is BAD:
        return Reading(None, ConfigError(in_order(decoder.problems), path), files, content)
    loaded = Loaded(
        config=config,
        path=path,
        base=base,
        version=content[:12],
        text=text,
        policies=policies,
        policy_versions={name: _policy_version(name, root, reader) for name in policies},
        secrets=secrets,
        files=files,
        lines=decoder.lines,
        warnings=tuple(in_order(warnings)),
        sources={"": blob, **reader.files},
    )
    return Reading(loaded, None, files, content)


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """Return problems in file order, each once."""
    return sorted(dict.fromkeys(problems), key=lambda problem: problem.line or 0)


def content_of(files: Iterable[str]) -> str:
    """Return the hash that a Reading of these files has as its content; a missing file counts as empty."""
    blobs = []
    for path in files:
        try:
            blobs.append(read_bytes(path))
        except OSError:
            blobs.append(b"")
    return _hash(*blobs)


def _hash(*blobs: bytes) -> str:
    digest = hashlib.sha256()
    for blob in blobs:
        digest.update(len(blob).to_bytes(8, "big") + blob)
    return digest.hexdigest()


def _failed(path: str, problems: list[Problem], blob: bytes = b"") -> Reading:
    return Reading(None, ConfigError(problems, path), (path,), _hash(blob))


def _hidden(variables: Mapping[str, str], secrets: Iterable[str]) -> dict[str, str]:
    hidden = dict.fromkeys(secrets, "***")
    hidden.update({value: f"${{{name}}}" for name, value in variables.items() if len(value) >= SHORTEST})
    return dict(sorted(hidden.items(), key=lambda item: -len(item[0])))


def _policies(decoder: Decoder, reader: PolicyReader, root: Node) -> dict[str, Any]:
    policies: dict[str, Any] = {}
    for name, route in _entries(root, "routes").items():
        node = route.value.get("policy") if isinstance(route.value, dict) else None
        if node is not None and node.value is not UNKNOWN:
            path = f"routes.{name}.policy"
            decoder.lines[path] = route.keys["policy"]
            policy = reader.read(decoder, node, path)
            if policy is not BAD:
                policies[name] = policy
    return policies


def _draft(decoder: Decoder, reader: PolicyReader, root: Node, policies: dict[str, Any], known: Parts, base: str) -> Draft:
    return Draft(
        decoder=decoder,
        reader=reader,
        models=_decoded(decoder, root, "models"),
        routes=_decoded(decoder, root, "routes"),
        signals=_decoded(decoder, root, "signals"),
        budgets=_decoded(decoder, root, "budgets"),
        policies=policies,
        labels=_labels(root),
        task=str(root.value["task"].value) if "task" in root.value else "classify",
        sections=frozenset(root.value),
        features=known.features,
        base=base,
    )


def _labels(root: Node) -> tuple[str, ...]:
    labels = root.value["labels"].data() if "labels" in root.value else None
    return tuple(labels) if isinstance(labels, list) and all(isinstance(label, str) for label in labels) else ()


def _decoded(decoder: Decoder, root: Node, section: str) -> dict[str, Any]:
    """Every name in the section; None where nothing could be made of it, which was said already."""
    return {name: decoder.decoded.get(f"{section}.{name}") for name in _entries(root, section)}


def _entries(root: Node, section: str) -> dict[str, Node]:
    node = root.value.get(section)
    return node.value if node is not None and isinstance(node.value, dict) else {}


def _policy_version(route: str, root: Node, reader: PolicyReader) -> str:
    path = f"routes.{route}.policy"
    whole = reader.versions.get(f"{path}.file")
    if whole is not None:
        return whole
    inner = {place: version for place, version in reader.versions.items() if place.startswith(path)}
    data = [_entries(root, "routes")[route].value["policy"].data(), inner]
    return hashlib.sha256(msgspec.json.encode(data, order="sorted")).hexdigest()[:12]
