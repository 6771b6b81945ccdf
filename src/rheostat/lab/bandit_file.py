"""The file of a bandit: a policy file whose policy carries what is known as plain numbers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rheostat.config.policy_file import FORMAT, KIND, version_of
from rheostat.errors import ConfigError, NotFound, Problem
from rheostat.lab.policy_file import form, write_document
from rheostat.policies import Bandit, parse_policy, walk


def read_bandit(path: str | os.PathLike[str]) -> tuple[Bandit, dict[str, str]]:
    """Return the bandit of a policy file, and the versions of the models it was made with.

    Raises:
        NotFound: there is no such file, or its policy is no bandit.
        ConfigError: it is no policy file.
    """
    import yaml

    target = Path(path)
    if not target.is_file():
        raise NotFound(f"there is no file {target}")
    try:
        content = yaml.safe_load(target.read_text(encoding="utf-8"))
        policy = parse_policy(content["policy"])
        pins = {pin["name"]: str(pin["version"]) for pin in content.get("models", ())}
    except (yaml.YAMLError, UnicodeDecodeError, TypeError, KeyError, ValueError) as error:
        raise ConfigError((Problem("", None, f"not a policy file with a bandit: {error}"),), str(target)) from None
    for part in walk(policy):
        if isinstance(part, Bandit):
            return part, pins
    raise NotFound(f"{target} holds no bandit; `rheostat train bandit` writes one")


def write_bandit(
    policy: Bandit,
    path: str | os.PathLike[str],
    *,
    versions: Mapping[str, str],
    data_hash: str = "",
    notes: tuple[str, ...] = (),
) -> str:
    """Write the policy file, whole or not at all; return its version.

    Args:
        versions: the models' versions, where they are known; a config must then have them.

    Raises:
        OSError: it cannot be written.
    """
    content: dict[str, Any] = {
        "kind": KIND,
        "format": FORMAT,
        "policy": _rounded(form(policy)),
        "data_hash": data_hash,
        "models": [{"name": arm, "version": versions[arm]} for arm in policy.arms if arm in versions],
        "notes": list(notes),
    }
    document = {"kind": KIND, "version": version_of(content), **{k: v for k, v in content.items() if k != "kind"}}
    return write_document(document, "What a bandit knows; brought up to date by `rheostat train bandit`", path)


def _rounded(node: Any) -> Any:
    """The same with numbers to nine significant digits, but for times."""
    if isinstance(node, dict):
        return {key: value if key == "until" else _rounded(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_rounded(value) for value in node]
    return float(f"{node:.9g}") if isinstance(node, float) else node
