from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rheostat.gateway.handle import ServerHandle

MODELS = """
models:
  fast: {backend: python, callable: "gateway_models:fast", each: true, cost: 1, run: inline, tags: [cheap], weak_at: irony}
  large: {backend: python, callable: "gateway_models:large", each: true, cost: 10, run: inline, tier: 2, version: "7"}
  odd: {backend: python, callable: "gateway_models:odd", each: true, run: inline, breaker: {failureThreshold: 0}}
  sleepy: {backend: python, callable: "gateway_models:sleepy", each: true, max_concurrency: 1, queue: 8}
routes:
  default: {policy: {cascade: {stages: [fast, large], threshold: 0.9}}, models: [fast, large]}
  odd: {policy: odd, models: [odd], fallback: {retry: 0, lighter: false, peer: false}}
  slow: {policy: sleepy, models: [sleepy], deadline: 8s, fallback: {retry: 0, lighter: false, peer: false}}
  ruled:
    models: [fast, large]
    policy:
      chain:
        - rules:
            - {name: by header, when: "headers['x-tier'] == 'gold'", use: large}
            - {name: by session, when: "session == 's1'", use: large}
        - fast
"""
SECRET = "an admin secret of some length"
Write = Callable[..., str]


def write_config(folder: Path, more: str = "") -> str:
    """Write a config and its models into `folder`; returns the config's path."""
    shutil.copy(Path(__file__).with_name("gateway_models.py"), folder / "gateway_models.py")
    path = folder / "rheostat.yaml"
    path.write_text(MODELS + more)
    return str(path)


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerHandle]:
    """One gateway for all tests that change nothing: no keys, admin open, records in an SQLite file."""
    more = f"""
server: {{max_body: 20000, max_batch: 50}}
admin: {{secret: "{SECRET}", port: 9099}}
records: {{sqlite: records.db}}
"""
    with ServerHandle(write_config(tmp_path_factory.mktemp("gateway"), more)) as handle:
        yield handle


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], ServerHandle]]:
    """Start gateways with more lines in their config; they are stopped at the end."""
    started: list[ServerHandle] = []

    def start_one(more: str) -> ServerHandle:
        handle = ServerHandle(write_config(tmp_path, more))
        handle.start()
        started.append(handle)
        return handle

    yield start_one
    for handle in started:
        handle.stop()
