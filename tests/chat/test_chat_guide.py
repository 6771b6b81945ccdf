"""The guide to conversations: its configs serve, its words are the code's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from chat_servers import Chats, ask, completion, gateway, hello

from rheostat.config import load_config

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "chat.md").read_text()
WHOLE, PRICES = re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)


@pytest.fixture
def servers() -> Iterator[tuple[Chats, Chats]]:
    pair = Chats(lambda _: completion("small", logprobs=[-0.1])), Chats(lambda _: completion("large"))
    yield pair
    for server in pair:
        server.close()


def test_its_configs_are_taken_without_a_warning(tmp_path: Path) -> None:
    for number, models in enumerate(({}, yaml.safe_load(PRICES))):
        path = tmp_path / f"{number}.yaml"
        path.write_text(yaml.safe_dump(yaml.safe_load(WHOLE) | models))
        assert load_config(str(path)).warnings == ()


def test_its_config_decides_as_it_says(servers: tuple[Chats, Chats], tmp_path: Path) -> None:
    small, large = servers
    config = WHOLE.replace("http://127.0.0.1:8001/v1", small.url).replace("http://127.0.0.1:8002/v1", large.url)
    config = "\n".join(line for line in config.splitlines() if not line.startswith(("task:", "records:")))
    long = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}] * 6
    with gateway(tmp_path, config) as handle:
        assert ask(handle.url, hello()).headers["x-rheostat-model"] == "small"
        assert ask(handle.url, hello(tools=[{"type": "function"}])).headers["x-rheostat-model"] == "large"
        assert ask(handle.url, {"model": "default", "messages": long}).headers["x-rheostat-model"] == "large"
        small.answer = lambda _: completion("unsure", logprobs=[-0.9])
        assert ask(handle.url, hello()).headers["x-rheostat-model"] == "large"
        large.answer = lambda _: (500, b"{}")
        assert ask(handle.url, hello()).json["choices"][0]["message"]["content"] == "unsure"


def test_what_rules_read_is_what_it_says(tmp_path: Path) -> None:
    told = set(re.findall(r"`data\.(\w+)`", GUIDE))
    (tmp_path / "chat_seen.py").write_text("def seen(row):\n    return {'label': 'x', 'output': ' '.join(sorted(row))}\n")
    config = "models: {m: {backend: python, callable: 'chat_seen:seen', each: true}}\nroutes: {default: {policy: m}}\n"
    with gateway(tmp_path, config) as handle:
        seen = set(ask(handle.url, hello()).json["choices"][0]["message"]["content"].split())
    assert seen == told | {"text"}
