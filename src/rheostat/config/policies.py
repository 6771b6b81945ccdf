"""Policies as they stand in the file, each mistake at its own line."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rheostat.config.decode import BAD, Decoder
from rheostat.config.document import Node, read_bytes, read_document
from rheostat.config.hints import fields_of
from rheostat.config.policy_file import KIND, ModelPin, PolicyFile, version_of
from rheostat.dotted import load_object
from rheostat.errors import ConfigError
from rheostat.policies import KINDS, Rule, Use
from rheostat.policies.parse import user_class
from rheostat.policies.rules import compile_pattern


class Reference(NamedTuple):
    """A name that a policy uses: a `model` or a `signal`, and where it stands."""

    kind: str
    name: str
    path: str
    line: int


class Pin(NamedTuple):
    """A model's version that a policy file was tuned with; the file stands at `path`."""

    pin: ModelPin
    file: str
    path: str
    line: int


class PolicyReader:
    """Reads policies below one file. `references`, `pins` and `named` (policies with a memory: kind, name, place) are what
    is to be checked against the rest of the config; `files` are the policy files that were read, by their name as written:
    those below `base`, or those that were `kept`.
    """

    def __init__(self, base: str, kept: Mapping[str, bytes] | None = None) -> None:
        self.base = base
        self._kept = kept
        self.references: list[Reference] = []
        self.pins: list[Pin] = []
        self.named: list[Reference] = []
        self.files: dict[str, bytes] = {}
        self.versions: dict[str, str] = {}
        self._within = False

    def read(self, decoder: Decoder, node: Node, path: str) -> Any:
        """Return the policy at `node`, or BAD."""
        if isinstance(node.value, str):
            self.references.append(Reference("model", node.value, path, node.line))
            return Use(node.value)
        forms = f"a policy is a model's name or a mapping of one of {', '.join(KINDS)} to its fields"
        if not isinstance(node.value, dict) or len(node.value) != 1:
            keys = f" with {len(node.value)} keys: {', '.join(node.value)}" if isinstance(node.value, dict) else ""
            line = next(iter(node.keys.values()), node.line)
            return decoder.problem(path, decoder.lines.get(path, line), f"{forms}; got {node.shown()}{keys}")
        kind, fields = next(iter(node.value.items()))
        line, where = node.keys[kind], f"{path}.{kind}"
        decoder.lines[where] = line
        if kind == "file":
            return self._file(decoder, fields, where)
        cls = self._class(decoder, kind, path, line)
        if cls is BAD:
            return BAD
        short = next(iter(fields_of(cls)), "") if isinstance(fields.value, list) else None
        whole = fields if short is None else _spelt_out(fields, short, line)
        policy = decoder.struct(whole, cls, where, short=short)
        if policy is not BAD:
            self._note(policy, fields, where, line)
        return policy

    def read_rule(self, decoder: Decoder, node: Node, path: str) -> Any:
        """Return the rule at `node`, its pattern checked here, where its line is known."""
        rule = decoder.struct(node, Rule, path)
        if rule is not BAD and rule.matches is not None:
            try:
                compile_pattern(rule.matches, True)
            except ValueError as error:
                return decoder.refused(node, path, error)
        return rule

    def _class(self, decoder: Decoder, kind: str, path: str, line: int) -> Any:
        if kind in KINDS:
            return KINDS[kind]
        module, _, name = kind.replace(":", ".").rpartition(".")
        try:
            if module:
                load_object(f"{module}:{name}", self.base, kind)
            cls = user_class(kind)
            fields_of(cls)
        except ConfigError as error:
            return decoder.problem(path, line, error.problems[0].message)
        except Exception as error:  # whatever a user's class does while it is looked at
            return decoder.problem(path, line, str(error))
        return cls

    def _note(self, policy: Any, node: Node, path: str, line: int) -> None:
        for kind in ("model", "signal"):
            names = getattr(policy, f"{kind}s", None)
            for name in names() if callable(names) else ():
                place = next(_standing(node, name, path, line, kind), (path, line))
                self.references.append(Reference(kind, name, *place))
        name = getattr(policy, "name", None)
        if isinstance(name, str) and getattr(policy, "hysteresis", None) is not None:
            self.named.append(Reference("hysteresis", name, path, line))

    def _file(self, decoder: Decoder, node: Node, path: str) -> Any:
        name = node.value
        if not isinstance(name, str) or not name:
            return decoder.problem(path, node.line, f"expected the name of a policy file, got {node.shown()}")
        if self._within:
            return decoder.problem(path, node.line, "a policy file cannot name another policy file")
        try:
            blob = self._kept[name] if self._kept is not None else read_bytes(pathlib.Path(self.base, name))
        except KeyError:
            return decoder.problem(path, node.line, f"{name} was not kept with this version")
        except (OSError, ValueError) as error:  # ValueError: a NUL in the name
            self.files[name] = b""
            return decoder.problem(path, node.line, f"{name} cannot be read: {getattr(error, 'strerror', None) or error}")
        self.files[name] = blob
        try:
            text = blob.decode("utf-8-sig")
        except UnicodeDecodeError:
            return decoder.problem(path, node.line, f"{name} is not UTF-8 text")
        inner = Decoder(decoder.special, decoder.places)
        self._within, mark = True, (len(self.references), len(self.named))
        try:
            policy = self._contents(inner, text, name, path, node.line)
        finally:
            self._within = False
        for problem in inner.problems:
            where = f"{name} line {problem.line}" if problem.line is not None else name
            decoder.problem(path, node.line, f"{where}: {problem.path + ': ' if problem.path else ''}{problem.message}")
        for list_, start in zip((self.references, self.named), mark, strict=True):
            list_[start:] = [each._replace(path=path, line=node.line) for each in list_[start:]]
        return policy

    def _contents(self, inner: Decoder, text: str, name: str, path: str, line: int) -> Any:
        document = read_document(text, None)
        inner.problems += document.problems
        root = document.root
        if root is None:
            return BAD
        kind = root.value.get("kind") if isinstance(root.value, dict) else None
        if kind is None or kind.value != KIND:
            return inner.problem("", root.line, f"not a policy file: it has no `kind: {KIND}`; `rheostat tune` writes one")
        file = inner.decode(root, PolicyFile, "")
        policy = self.read(inner, root.value["policy"], "policy") if "policy" in root.value else BAD
        if file is BAD or inner.problems:
            return BAD
        version = version_of(root.data())
        if file.version != version:
            remedy = f"tune again, or write `version: {version}` to keep the edit"
            return inner.problem("version", root.keys["version"], f"the file was changed after it was written; {remedy}")
        self.versions[path] = version
        self.pins += [Pin(pin, name, path, line) for pin in file.models]
        return policy


def _spelt_out(items: Node, first: str, line: int) -> Node:
    node = Node(line, {first: items})
    node.keys[first] = line
    return node


def _standing(node: Node, name: str, path: str, line: int, kind: str) -> Iterator[tuple[str, int]]:
    """Yield where `name` stands below `node`: as a value, a key, or a signal inside a condition."""
    if isinstance(node.value, dict):
        for key, child in node.value.items():
            if key == name:
                yield f"{path}.{key}", node.keys[key]
            yield from _standing(child, name, f"{path}.{key}", node.keys[key], kind)
    elif isinstance(node.value, list):
        for index, child in enumerate(node.value):
            yield from _standing(child, name, f"{path}[{index}]", child.line, kind)
    elif node.value == name or (kind == "signal" and isinstance(node.value, str) and f"signals.{name}" in node.value):
        yield path, line
