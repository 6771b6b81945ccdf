"""The artefact of tuning: a policy in the config's own form, with the point it should hold."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from rheostat.config.policy_file import FORMAT, KIND, version_of
from rheostat.lab.bootstrap import Interval
from rheostat.lab.figures import Figures
from rheostat.lab.outcomes import OutcomesTable
from rheostat.lab.tune import Tuned
from rheostat.policies import KINDS, Policy, Use


def form(policy: Any) -> Any:
    """Return a policy as it is written in the config; `parse_policy` reads it back as an equal policy.

    Raises:
        ValueError: the policy is not a msgspec Struct, so that it has no such form.
    """
    if isinstance(policy, Use):
        return policy.model
    cls = type(policy)
    if not isinstance(policy, msgspec.Struct):
        raise ValueError(f"{cls.__name__} is no msgspec Struct; a policy that goes into a file must be one")
    names = {known: name for name, known in KINDS.items()}
    return {names.get(cls, f"{cls.__module__}.{cls.__qualname__}"): _fields(policy)}


def _fields(struct: msgspec.Struct) -> dict[str, Any]:
    """A struct's fields under their config names, without those that stand at their default."""
    written: dict[str, Any] = {}
    for info in msgspec.structs.fields(struct):
        value = getattr(struct, info.name)
        if info.default is not msgspec.NODEFAULT and value == info.default:
            continue
        if info.default_factory is not msgspec.NODEFAULT and value == info.default_factory():
            continue
        written[info.encode_name] = _plain(value)
    return written


def _plain(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return form(value) if callable(getattr(value, "decide", None)) else _fields(value)
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return float(value) if isinstance(value, float) else value


def policy_document(tuned: Tuned, table: OutcomesTable) -> dict[str, Any]:
    """Return the policy file's content. `version` is a hash of everything else in it."""
    content: dict[str, Any] = {
        "kind": KIND,
        "format": FORMAT,
        "policy": form(tuned.policy),
        "goal": {k: float(v) if isinstance(v, float) else v for k, v in msgspec.to_builtins(tuned.goal).items()},
        "data_hash": table.data_hash,
        "models": [{"name": name, "version": table.model_info[name].version} for name in tuned.stages],
        "expected": _expected(tuned.reported),
        "chosen_on": _expected(tuned.chosen),
        "notes": list(tuned.notes),
    }
    return {"kind": KIND, "version": version_of(content), **{k: v for k, v in content.items() if k != "kind"}}


def _expected(figures: Figures) -> dict[str, Any]:
    return {
        "split": figures.split,
        "n": figures.n,
        "left_out": sum(figures.left_out.values()) + figures.unanswered + figures.reviewed,
        "quality": _interval(figures.quality),
        "share": _interval(figures.share),
        "cost": _interval(figures.cost),
        "latency_p95_s": round(figures.latency_s.p95, 6),
    }


def _interval(found: Interval) -> dict[str, float]:
    return {"mean": round(found.mean, 6), "low": round(found.low, 6), "high": round(found.high, 6)}


def write_policy_file(tuned: Tuned, table: OutcomesTable, path: str | os.PathLike[str]) -> str:
    """Write the policy file, whole or not at all; return its version.

    Raises:
        OSError: it cannot be written.
        ValueError: the policy has no form in the config.
    """
    return write_document(policy_document(tuned, table), f"Made by tuning for: {tuned.goal.words()}", path)


def write_document(document: Mapping[str, Any], heading: str, path: str | os.PathLike[str]) -> str:
    """Write a policy file's document under a comment, whole or not at all; return its version.

    Raises:
        OSError: it cannot be written.
    """
    import yaml

    text = yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True, default_flow_style=None, width=110)
    target = Path(path)
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        draft.write_text(f"# {heading}\n{text}", encoding="utf-8")
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return str(document["version"])


def policy_form(policy: Policy) -> str:
    """Return the policy as one line of YAML, for people."""
    import yaml

    text: str = yaml.safe_dump(form(policy), default_flow_style=True, width=10_000, sort_keys=False, allow_unicode=True)
    return text.removesuffix("...\n").strip()
