"""Config files for the tests, and the parts they choose from."""

from __future__ import annotations

import pathlib
import textwrap
from collections.abc import Mapping

from rheostat.backends import BACKENDS
from rheostat.config import Loaded, Parts, load_config
from rheostat.errors import ConfigError, Problem
from rheostat.signals.base import ScorerSettings


class NumberScorer(ScorerSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="number"):
    """A scorer of the tests' own."""

    value: float
    head: str | None = None


PARTS = Parts(BACKENDS, {"number": NumberScorer}, ("length", "words"))

GOOD = """\
task: classify
labels: [ham, spam, unknown]
models:
  fast: {backend: python, callable: "mine:fast", version: 2026-11-01, cost: 1}
  large:
    backend: openai
    base_url: ${LARGE_URL}
    model: qwen3-32b
    api_key: ${LARGE_KEY}
    version: v2
    cost: 40
    timeout: 2s
    max_concurrency: 32
    peers: [large-b]
    lighter: fast
    breaker: {failureThreshold: 0, timeoutSeconds: 5}
  large-b: {backend: python, callable: "mine:large", cost: 40}
signals:
  hardness: {scorer: number, value: 0.5}
routes:
  default:
    policy:
      chain:
        - rules:
            - {name: long text, when: "text.size() > 1000", use: large}
            - {name: high risk, when: "meta.risk_level == 'high'", use: large}
        - binary: {signal: hardness, threshold: 0.7, strong: large, weak: {blend: {weights: {fast: 1, large-b: 3}}}}
        - cascade: {stages: [fast, large], threshold: 0.90, hysteresis: [0.88, 0.92], key: session}
    deadline: 3s
    fallback: {retry: 1, peer: true, lighter: true, preset: {label: unknown}}
records: {jsonl: records.jsonl}
server: {port: 8081, max_in_flight: 0}
admin: {secret: "${ADMIN:-a-secret-of-24-characters}"}
keys:
  - {key: client-key-0123456789, tenant: shop, may_force: true, routes: [default]}
holds: {limit: 100, idle: 5m}
"""
ENV = {"LARGE_URL": "http://user:pass-word@large:8000/v1", "LARGE_KEY": "sk-large-0123456789"}


def load(folder: pathlib.Path, text: str, env: Mapping[str, str] = ENV) -> Loaded:
    """Write `text` as the config and load it."""
    path = folder / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return load_config(str(path), env, PARTS)


def problems(folder: pathlib.Path, text: str, env: Mapping[str, str] = ENV) -> list[Problem]:
    """Return what is wrong with `text`."""
    try:
        load(folder, text, env)
    except ConfigError as error:
        return list(error.problems)
    return []


def with_model(settings: str) -> str:
    """Return a small config whose model `a` has these settings, in line 2."""
    return f'models:\n  a: {{backend: python, callable: "m:f", {settings}}}\nroutes: {{default: {{policy: a}}}}\n'


def with_policy(policy: str) -> str:
    """Return a small config with models a, b, c, whose policy starts in line 8."""
    head = """\
    models:
      a: {backend: python, callable: "m:a"}
      b: {backend: python, callable: "m:b"}
      c: {backend: python, callable: "m:c"}
    routes:
      default:
        policy:
    """
    return textwrap.dedent(head) + textwrap.indent(textwrap.dedent(policy), "      ")
