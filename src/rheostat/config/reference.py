"""The reference page of the config, written from the structs themselves: `python -m rheostat.config.reference`."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, get_args, get_origin

from msgspec import NODEFAULT, Meta, Struct

from rheostat.cache.semantic import SemanticSettings
from rheostat.cache.settings import CacheSettings, RouteCache
from rheostat.config.hints import expected, fields_of
from rheostat.config.parts import Parts
from rheostat.config.policy_file import ModelPin, PolicyFile
from rheostat.config.schema import (
    AdminSettings,
    Config,
    HoldSettings,
    KeySettings,
    RecordSettings,
    RouteSettings,
    ServerSettings,
)
from rheostat.guarded import RedisSettings
from rheostat.policies import KINDS, Arm, Rule
from rheostat.pool import ModelSettings
from rheostat.pool.preparing import ImageSettings, PrepareSettings
from rheostat.pool.worker.settings import WorkerSettings
from rheostat.resilience.allowance import AllowanceSettings
from rheostat.resilience.batch import BatchSettings
from rheostat.resilience.breaker import BreakerSettings
from rheostat.resilience.health import EjectionSettings, HealthSettings
from rheostat.resilience.ladder import FallbackSettings, Preset
from rheostat.resilience.limit import LimitSettings
from rheostat.resilience.ramp import RampSettings
from rheostat.resilience.residency import MemorySettings
from rheostat.resilience.retry import RetryBudgetSettings
from rheostat.resilience.spend import SpendSettings
from rheostat.resilience.stream import StreamLimits
from rheostat.results.settings import ResultSettings, WebhookSettings
from rheostat.sessions.settings import RouteSession, SessionRedis, SessionSettings
from rheostat.signals import FEATURES
from rheostat.types.duration import Duration
from rheostat.watch import WatchSettings

INTRO = """\
# The config file

One YAML file says everything. `rheostat check FILE` reads it as the gateway does and lists every mistake with its line.
This page is written from the code by `python -m rheostat.config.reference`.

```yaml
models:
  fast: {backend: onnx, path: fast.onnx, tokenizer: tokenizer.json, version: "2026-11-01", cost: 1}
  large: {backend: openai, base_url: "${LARGE_URL}", model: qwen3-32b, version: v2, cost: 40, timeout: 2s, lighter: fast}
routes:
  default:
    policy: {cascade: {stages: [fast, large], threshold: 0.9}}
    deadline: 3s
    fallback: {preset: {label: unknown}}
records: {jsonl: records.jsonl}
```

## How the file is read

- **YAML 1.2.** `no`, `on` and `2026-11-01` are texts, `true` and `false` are the only switches, `010` is no number. A key
  that stands twice is a mistake. Anchors, aliases and `<<` work; tags such as `!x` do not.
- **Nothing is guessed.** A key that is not on this page is a mistake, and so is a number in quotes where a number is wanted.
- **Variables.** `${NAME}` is replaced by the environment variable NAME in values, never in keys; `${NAME:-default}` has a
  default for when it is unset or empty; `$${` is a plain `${`. An unset variable without default is a mistake. Unquoted, a
  variable may stand for a number or a switch. Inside `{ }` and `[ ]`, quote values with a comma or bracket in the default.
- **Paths** start from the folder of the file.
- **Durations** are `300ms`, `2s`, `5m`, `1h`, or a number of seconds.
- **Zero** is never replaced by the default. For a limit or a time-out it means that there is none (`timeout`, `deadline`,
  `max_concurrency`, `max_in_flight`, `keep_rows`, `failureThreshold`); for a number of things it means none of them
  (`retry`, `queue`, `drain`, `cost`); for a port it means any free one. Where none would be unsafe, 0 is refused.
- **Precedence.** The file is the only source. Nothing that was stored by an earlier run overrides it; the environment comes
  in through `${NAME}` alone.
- **Secrets.** Keys, secrets, tokens, passwords, headers and credentials in URLs are masked in messages, logs and pages when
  they have 6 characters or more.

## How it is reloaded

The file's folder is watched, and those of its policy files: a write in place, an atomic rename and a swapped symbolic link
(a Kubernetes ConfigMap) are all seen. The new file is checked and its models are loaded before it takes over; a file that
is broken, empty or gone changes nothing but the status. The same content again does nothing. A model file that
changes on its own starts no reload; the next one takes it up. What is bound at the start needs a restart, and a file that
changes it is refused: `records`, `results`, `cache`, `admin`, `holds`, `memory`, and the host and ports of `server`.
"""

POLICIES = """\
## Policies

A policy is written as

- the name of a model, which then always answers: `policy: fast`;
- one of the kinds below with its fields: `{cascade: {stages: [fast, large], threshold: 0.9}}`. A list is short for the
  kind's first field: `{chain: [a, b]}` is `{chain: {policies: [a, b]}}`;
- `{file: tuned.yaml}`, a policy file that `rheostat tune` wrote, also as a part of another policy;
- your own class by its dotted name with its fields: `{my_policies.Mine: {model: fast}}`. Its module may lie beside the file.

Two policies with `hysteresis` in one route need different names, as they remember by name.
"""


def reference(parts: Parts | None = None) -> str:
    """Return the reference page as Markdown."""
    known = parts or Parts.builtin()
    common = set(fields_of(ModelSettings))
    items: dict[str, type[Struct]] = {"rules": Rule, "split": Arm}
    blocks = [INTRO, *_section("## The file", Config)]
    blocks += _section("## models.NAME", ModelSettings)
    blocks += _section("### breaker", BreakerSettings) + _section("### ramp", RampSettings)
    blocks += _section("### health", HealthSettings) + _section("### stream", StreamLimits)
    blocks += _section("### retry_budget", RetryBudgetSettings) + _section("### adaptive", LimitSettings)
    blocks += _section("### batch", BatchSettings) + _section("### workers", WorkerSettings)
    blocks += _section("### prepare", PrepareSettings) + _section("### prepare.image", ImageSettings)
    for tag, cls in known.backends.items():
        blocks += _section(f"### backend: {tag}", cls, without=common)
    blocks += _section("## routes.NAME", RouteSettings)
    blocks += _section("### cache", RouteCache) + _section("### cache.semantic", SemanticSettings)
    blocks += _section("### session", RouteSession)
    blocks += _section("### fallback", FallbackSettings) + _section("### fallback.preset", Preset)
    blocks.append(POLICIES)
    for kind, policy in KINDS.items():
        blocks += _section(f"### {kind}", policy)
        if kind in items:
            blocks += _section(f"#### an item of {kind}", items[kind])
    blocks += _section("### A policy file", PolicyFile) + _section("#### an item of models", ModelPin)
    blocks.append("## signals.NAME\n\nA signal of your own; its name is what policies and conditions use.\n")
    for tag, scorer in known.scorers.items():
        blocks += _section(f"### scorer: {tag}", scorer)
    rows = "\n".join(f"| `{name}` | {said} |" for name, said in FEATURES.items())
    blocks.append(f"### Built-in text features\n\nThey need no entry.\n\n| name | value |\n|---|---|\n{rows}\n")
    sections: dict[str, type[Struct]] = {
        "budgets.NAME": SpendSettings,
        "budgets.NAME.limits": AllowanceSettings,
        "records": RecordSettings,
        "cache": CacheSettings,
        "cache.redis": RedisSettings,
        "sessions": SessionSettings,
        "sessions.redis": SessionRedis,
        "results": ResultSettings,
        "results.webhook": WebhookSettings,
        "server": ServerSettings,
        "admin": AdminSettings,
        "keys[]": KeySettings,
        "holds": HoldSettings,
        "health": EjectionSettings,
        "memory": MemorySettings,
        "watch": WatchSettings,
    }
    for title, section in sections.items():
        blocks += _section(f"## {title}", section)
    return "\n".join(blocks)


def _section(title: str, cls: type[Struct], without: Iterable[str] = ()) -> list[str]:
    """A struct's own words and a table of its fields, followed by the structs that only it uses."""
    fields = {key: field for key, field in fields_of(cls).items() if key not in without}
    rows = "\n".join(f"| `{key}` | {_kind(key, field.type)} | {_default(field)} |" for key, field in fields.items())
    table = f"\n| key | value | default |\n|---|---|---|\n{rows}\n" if rows else ""
    blocks = [f"{title}\n\n{inspect.cleandoc(cls.__doc__ or '')}\n{table}"]
    if title.startswith("### backend"):
        for key, field in fields.items():
            blocks += [_section(f"#### {key}", inner)[0] for inner in _structs_in(field.type)]
    return blocks


def _kind(key: str, hint: Any) -> str:
    said = expected(hint) if hint is not Any else "a policy" if key == "policy" else "any value"
    if get_origin(hint) is Annotated:
        for meta in get_args(hint)[1:]:
            if isinstance(meta, Meta):
                said += f", {meta.ge} or more" if meta.ge is not None else ""
                said += f", at most {meta.le}" if meta.le is not None else ""
    if _structs_in(hint) and get_origin(hint) not in (dict, Mapping):
        said = said.partition(" with ")[0]
    return said.replace("|", "\\|")


def _structs_in(hint: Any) -> list[type[Struct]]:
    if isinstance(hint, type) and issubclass(hint, Struct):
        return [hint]
    return [found for inner in get_args(hint) for found in _structs_in(inner)]


def _default(field: Any) -> str:
    default = field.default_factory() if field.default_factory is not NODEFAULT else field.default
    if default is NODEFAULT:
        return "required"
    if isinstance(default, Struct):
        return "see there"
    if isinstance(default, Duration):
        return f"{default:g}s" if default else "0"
    if default is None or (isinstance(default, str | tuple | dict) and not default):
        return "none"
    if isinstance(default, bool):
        return str(default).lower()
    return f"`{default}`"


if __name__ == "__main__":
    print(reference(), end="")
