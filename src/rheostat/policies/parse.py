"""From the config's form to a policy: `name`, `{kind: fields}` or `{dotted.Class: fields}`."""

from __future__ import annotations

import difflib
import importlib
from typing import Any

import msgspec

from rheostat.policies.balance import Balance
from rheostat.policies.bandit import Bandit
from rheostat.policies.base import Policy, Use
from rheostat.policies.binary import Binary
from rheostat.policies.blend import Blend, Delegate
from rheostat.policies.by_label import ByLabel
from rheostat.policies.cascade import Cascade
from rheostat.policies.cheapest import Cheapest
from rheostat.policies.compose import Chain
from rheostat.policies.review import Review
from rheostat.policies.rules import Rules
from rheostat.policies.split import Split
from rheostat.policies.tiers import Tiers

KINDS: dict[str, type] = {
    "balance": Balance,
    "bandit": Bandit,
    "binary": Binary,
    "blend": Blend,
    "by_label": ByLabel,
    "cascade": Cascade,
    "chain": Chain,
    "cheapest": Cheapest,
    "delegate": Delegate,
    "review": Review,
    "rules": Rules,
    "split": Split,
    "tiers": Tiers,
}
"""Policies by the name they have in the config."""


def parse_policy(node: Any) -> Policy:
    """Build a policy from its form in the config.

    A string is one model. A mapping has one key: a kind of KINDS, or the dotted name of a user's class
    (`package.module.Class` or `package.module:Class`). A list is short for the kind's first field.

    Raises:
        ValueError: unknown kind, unknown or missing field, a value that makes no sense; the message ends with the place
            below this node, such as ``at `$.stages[0]` ``.
    """
    if isinstance(node, str):
        return Use(node)
    if not isinstance(node, dict) or len(node) != 1:
        raise ValueError(f"a policy is a model's name or one of {', '.join(KINDS)} with its fields, got {_shown(node)}")
    kind, fields = next(iter(node.items()))
    cls = KINDS.get(kind) or user_class(kind)
    if isinstance(fields, list):
        fields = {cls.__struct_encode_fields__[0]: fields}  # type: ignore[attr-defined]
    if not isinstance(fields, dict):
        raise ValueError(f"`{kind}` takes a mapping of its fields, got {_shown(fields)}")
    try:
        policy: Policy = msgspec.convert(fields, cls, dec_hook=_nested)
    except msgspec.ValidationError as error:
        raise ValueError(f"`{kind}`: {error}") from None
    return policy


def user_class(name: str) -> type:
    """Import a user's policy class by its dotted name.

    Raises:
        ValueError: not a known kind and not importable, or the class has no `decide` or is not a msgspec Struct.
    """
    module, _, attribute = name.replace(":", ".").rpartition(".")
    if not module:
        near = difflib.get_close_matches(name, KINDS, n=1)
        hint = f"did you mean `{near[0]}`?" if near else f"known: {', '.join(KINDS)}"
        raise ValueError(f"unknown policy `{name}`; {hint} (your own class is named package.module.Class)")
    try:
        cls = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"cannot import the policy `{name}`: {error}") from None
    if not (isinstance(cls, type) and issubclass(cls, msgspec.Struct) and callable(getattr(cls, "decide", None))):
        raise ValueError(f"`{name}` is not a policy: it must be a msgspec.Struct with a `decide(ctx, history)` method")
    return cls


def _nested(kind: type, value: Any) -> Any:
    if kind is Policy:
        return parse_policy(value)
    parse = getattr(kind, "parse", None)
    if parse is None:
        raise TypeError(f"cannot decode {kind.__name__}")
    return parse(value)


def _shown(node: Any) -> str:
    text = repr(node)
    return text if len(text) <= 60 else text[:57] + "..."
