"""The file as a tree that remembers where everything stands.

`${NAME}` and `${NAME:-default}` are replaced in text values after parsing; `$${` is a plain
`${`.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import yaml

from rheostat.config.scalars import resolve
from rheostat.config.syntax import syntax_problem
from rheostat.errors import Problem

MAX_NODES = 50_000
"""A file that expands to more values (by aliases of aliases) is refused."""
MAX_DEPTH = 50
MAX_BYTES = 4_194_304
"""A larger file is no config."""

_OPEN, _CLOSE = "$\U0010fff0", "\U0010fff1"  # stand for `${` and `}` while parsing, so that { a: ${X} } needs no quotes
_IN_TEXT = re.compile(r"(?<!\$)\$\{([A-Za-z_][A-Za-z0-9_]*)((?::-[^{}\n]*)?)\}")
_MARKED = re.compile(re.escape(_OPEN) + r"([A-Za-z_][A-Za-z0-9_]*)(?::-([^" + _CLOSE + r"]*))?" + _CLOSE)
_TAG = "tag:yaml.org,2002:"
_KNOWN_TAGS = ("str", "int", "float", "bool", "null", "timestamp", "map", "seq", "merge", "value")

UNKNOWN: Any = object()
"""The value of a node whose variable is not set; said once, then not looked at again."""


class Node:
    """One value of the file. `value` is None, a bool, number or text, a list of nodes, or a dict of nodes.

    `source` is a scalar as it was written, `plain` whether without quotes, `variables` what was put in from outside,
    `keys` the line of each key of a mapping.
    """

    __slots__ = ("keys", "line", "plain", "source", "value", "variables")

    def __init__(self, line: int, value: Any) -> None:
        self.line = line
        self.value = value
        self.source = ""
        self.plain = False
        self.variables: tuple[str, ...] = ()
        self.keys: dict[str, int] = {}

    def data(self) -> Any:
        """Return the value without marks: None, bool, number, text, list or dict."""
        if isinstance(self.value, dict):
            return {key: child.data() for key, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.data() for child in self.value]
        return self.value

    def shown(self) -> str:
        """Return the value for a message: as it was written, cut to a readable length, variables unreplaced."""
        if isinstance(self.value, dict | list):
            return "a mapping" if isinstance(self.value, dict) else "a list"
        text = self.source if len(self.source) <= 40 else self.source[:37] + "..."
        if isinstance(self.value, str) or self.value is UNKNOWN:
            return f"the text {text!r}"
        return "nothing" if self.value is None else f"`{text}`"


class Document(NamedTuple):
    """A file that was read. `root` is None when nothing could be; `variables` are those that were replaced."""

    root: Node | None
    problems: list[Problem]
    variables: dict[str, str]


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return what is in a file.

    Raises:
        OSError: it cannot be read, or is larger than MAX_BYTES.
    """
    with open(path, "rb") as file:
        blob = file.read(MAX_BYTES + 1)
    if len(blob) > MAX_BYTES:
        raise OSError(errno.EFBIG, f"larger than {MAX_BYTES} bytes, so it is no config")
    return blob


def read_document(text: str, env: Mapping[str, str] | None) -> Document:
    """Parse `text`; variables are taken from `env`.

    With `env` None nothing is replaced, and what YAML 1.1 calls a text stays one (`12e5`): so are files that were written
    by PyYAML read back as they were.
    """
    marked = text if env is None else _IN_TEXT.sub(rf"{_OPEN}\1\2{_CLOSE}", text)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        tree = yaml.compose(marked, Loader=loader)
    except yaml.YAMLError as error:
        return Document(None, [syntax_problem(error, text)], {})
    except RecursionError:
        return Document(None, [Problem("", None, f"nested more than {MAX_DEPTH} levels deep")], {})
    if tree is None:
        return Document(None, [Problem("", None, "the file is empty")], {})
    builder = _Builder(env)
    root = builder.build(tree, "", 0)
    return Document(None if root is UNKNOWN else root, builder.problems, builder.used)


class _Builder:
    def __init__(self, env: Mapping[str, str] | None) -> None:
        self.env = env
        self.problems: list[Problem] = []
        self.used: dict[str, str] = {}
        self.count = 0
        self.inside: set[int] = set()
        self.full = False

    def build(self, tree: yaml.Node, path: str, depth: int) -> Any:
        line = tree.start_mark.line + 1
        self.count += 1
        trouble = ""
        if self.count > MAX_NODES:
            if self.full:
                return UNKNOWN
            self.full = True
            trouble = f"the file expands to more than {MAX_NODES} values"
        elif id(tree) in self.inside:
            trouble = "the alias stands inside what it refers to"
        elif depth > MAX_DEPTH:
            trouble = f"nested more than {MAX_DEPTH} levels deep"
        elif tree.tag.removeprefix(_TAG) not in _KNOWN_TAGS:
            trouble = f"tags such as `{tree.tag.replace(_TAG, '!!')}` are not used here; remove it"
        if trouble:
            return self._refuse(path, line, trouble)
        if isinstance(tree, yaml.ScalarNode):
            return self._scalar(tree, path, line)
        self.inside.add(id(tree))
        if isinstance(tree, yaml.SequenceNode):
            items = [self.build(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(tree.value)]
            node = Node(line, [Node(line, item) if item is UNKNOWN else item for item in items])
        else:
            node = self._mapping(tree, path, line, depth)
        self.inside.discard(id(tree))
        return node

    def _mapping(self, tree: Any, path: str, line: int, depth: int) -> Node:
        node = Node(line, {})
        merged: list[tuple[str, Node, int]] = []
        for key_node, value_node in tree.value:
            key_line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode) or key_node.value == "":
                self._refuse(path, key_line, "a key must be a word or a text")
                continue
            key = key_node.value.replace(_OPEN, "${").replace(_CLOSE, "}")
            where = f"{path}.{key}" if path else key
            if key == "<<" and key_node.style in (None, ""):
                merged += self._merged(value_node, path, key_line, depth)
                continue
            child = self.build(value_node, where, depth + 1)
            if key in node.keys:
                self._refuse(where, key_line, f"`{key}` stands twice, first in line {node.keys[key]}")
                continue
            node.keys[key] = key_line
            node.value[key] = Node(key_line, UNKNOWN) if child is UNKNOWN else child
        for key, value, key_line in merged:
            if key not in node.keys:
                node.keys[key] = key_line
                node.value[key] = value
        return node

    def _merged(self, tree: yaml.Node, path: str, line: int, depth: int) -> list[tuple[str, Node, int]]:
        sources = tree.value if isinstance(tree, yaml.SequenceNode) else [tree]
        found: list[tuple[str, Node, int]] = []
        for source in sources:
            node = self.build(source, path, depth + 1)
            if node is UNKNOWN:
                continue
            if not isinstance(node.value, dict):
                self._refuse(path, line, "`<<` merges mappings: give it an alias of one, such as `<<: *defaults`")
                continue
            found += [(key, value, node.keys[key]) for key, value in node.value.items()]
        return found

    def _scalar(self, tree: Any, path: str, line: int) -> Any:
        plain = tree.style in (None, "")
        raw: str = tree.value
        node = Node(line, raw)
        node.plain = plain
        node.source = raw.replace(_OPEN, "${").replace(_CLOSE, "}")
        if self.env is not None and ("$" in raw or _OPEN in raw):
            return self._with_variables(node, raw, path)
        if plain and (self.env is not None or tree.tag != _TAG + "str"):
            value = resolve(raw)
            node.value = raw if value is not raw and _explicit(tree) else value
        return node

    def _with_variables(self, node: Node, raw: str, path: str) -> Node:
        names: list[str] = []

        def put(match: re.Match[str]) -> str:
            name, default = match[1], match[2]
            value = (self.env or {}).get(name)
            if value is None or (value == "" and default is not None):
                if default is None:
                    hint = f"set it, or write ${{{name}:-default}}"
                    self._refuse(path, node.line, f"the environment variable {name} is not set; {hint}")
                    names.append("")
                return default or ""
            self.used[name] = value
            names.append(name)
            return value

        rest = _MARKED.sub("", raw)
        if re.search(r"(?<!\$)\$\{", rest):
            hint = "write ${NAME} or ${NAME:-default}, or $${ for a plain ${"
            self._refuse(path, node.line, f"{node.shown()} is not a variable; {hint}")
            names.append("")
        text = _MARKED.sub(put, raw.replace("$${", "${"))
        node.value = UNKNOWN if "" in names else text
        node.variables = tuple(names) or (("default",) if _MARKED.search(raw) else ())
        return node

    def _refuse(self, path: str, line: int, message: str) -> Any:
        self.problems.append(Problem(path, line, message))
        return UNKNOWN


def _explicit(tree: Any) -> bool:
    """Whether `!!str` was written: the parser's own rules would have made something else of it."""
    if tree.tag != _TAG + "str":
        return False
    implied = yaml.SafeLoader.yaml_implicit_resolvers.get(tree.value[:1], [])
    return any(pattern.match(tree.value) for _, pattern in implied)
