"""How two versions of a config differ, and a version in which one model is as it was in another."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any

import yaml

from rheostat.config.document import Document, Node, read_document
from rheostat.config.masking import secrets_in
from rheostat.config.scalars import resolve
from rheostat.errors import NotFound

Sources = Mapping[str, bytes]
"""The files of a config: its own under the empty name, its policy files by their name as written (`Loaded.sources`)."""


def difference(before: Sources, after: Sources, names: tuple[str, str], mask: Callable[[str], str]) -> str:
    """Return the changes as a unified diff, empty where there are none; secrets that stand in either are hidden.

    Args:
        names: what the two are called at the head of each file's changes.
        mask: hides more secrets.
    """
    lines: list[str] = []
    for file in sorted({*before, *after}):
        old, new = (each.get(file, b"").decode("utf-8-sig", "replace").splitlines() for each in (before, after))
        old_name, new_name = (f"{name}/{file or 'config'}" for name in names)
        lines += difflib.unified_diff(old, new, old_name, new_name, lineterm="")
    found = "\n".join(lines)
    for sources in (before, after):
        document = _read(sources)
        secrets = secrets_in(document.root, {}) if document.root is not None else ()
        for secret in secrets:
            if secret not in document.variables:
                found = found.replace(secret, "[secret]")
    return mask(found)


def model_as_in(now: Sources, then: Sources, model: str) -> Sources | None:
    """Return the files of `now` with the settings that a model had `then`; None where they are the same.

    Raises:
        NotFound: one of them has no such model.
    """
    new, old = _data(now), _data(then)
    for data in (new, old):
        if model not in data["models"]:
            raise NotFound(f"there is no model {model[:80]!r} in both versions", "model")
    if new["models"][model] == old["models"][model]:
        return None
    new["models"][model] = old["models"][model]
    text: str = yaml.dump(new, Dumper=_Writer, sort_keys=False, allow_unicode=True, width=120)
    return {**now, "": text.encode()}


class _Anything(dict[str, str]):
    """An environment in which every variable is set: what stands in the file is wanted, not what is put in its place."""

    def get(self, key: str, default: Any = None) -> Any:  # noqa: ARG002
        return key


class _Writer(yaml.SafeDumper):
    """Quotes texts that this config's rules would read as something else, such as "1e5"."""


def _text(writer: _Writer, text: str) -> yaml.Node:
    return writer.represent_scalar("tag:yaml.org,2002:str", text, style=None if resolve(text) is text else '"')


_Writer.add_representer(str, _text)


def _read(sources: Sources) -> Document:
    return read_document(sources[""].decode("utf-8-sig", "replace"), _Anything({"": ""}))


def _data(sources: Sources) -> dict[str, Any]:
    root = _read(sources).root
    assert root is not None  # it has served
    found: dict[str, Any] = _written(root)
    return found


def _written(node: Node) -> Any:
    """Return what stands in the file, variables unreplaced."""
    value = node.value
    if isinstance(value, dict):
        return {key: _written(child) for key, child in value.items()}
    if isinstance(value, list):
        return [_written(child) for child in value]
    return node.source if isinstance(value, str) and "$" in node.source else value
