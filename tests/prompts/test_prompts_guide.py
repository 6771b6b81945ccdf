"""The guide to what decides for a prompt: its config serves and decides as it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
import yaml

from rheostat.backends.token_confidence import NEEDED
from rheostat.config import load_config
from rheostat.types.ability import Ability
from tests.chat.chat_servers import Chats, ask, completion, gateway, hello
from tests.prompts.test_groups import ENCODER, real

DOCS = Path(__file__).parents[2] / "docs" / "guides"
GUIDE = (DOCS / "prompts.md").read_text()
(WHOLE,) = re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)
KEY = "key-of-team-a-for-tests"


def test_its_config_is_taken_without_a_warning(tmp_path: Path) -> None:
    (tmp_path / "minilm").mkdir()
    (tmp_path / "rheostat.yaml").write_text(WHOLE)
    loaded = load_config(str(tmp_path / "rheostat.yaml"), {"KEY_OF_TEAM_A": KEY, "KEY_OF_TEAM_B": "another-key-for-tests"})
    assert loaded.warnings == ()


def test_the_budgets_guides_limits_are_taken(tmp_path: Path) -> None:
    text = (DOCS / "budgets-and-review.md").read_text()
    (block,) = (each for each in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if "limits" in each)
    config = {
        "models": {"m": {"backend": "template", "label": "a", "cost": 0.0001}}, "routes": {"default": {"policy": "m"}},
        "keys": [{"key": "k" * 20, "tenant": "a"}], **yaml.safe_load(block),
    }  # fmt: skip
    (tmp_path / "rheostat.yaml").write_text(yaml.safe_dump(config))
    warned = [each.path for each in load_config(str(tmp_path / "rheostat.yaml")).warnings]
    assert not [path for path in warned if path.startswith("budgets")]


def test_it_names_all_there_is() -> None:
    assert all(f"`{ability}`" in GUIDE for ability in get_args(Ability))
    assert all(f"`{kind}`" in GUIDE for kind in NEEDED)


@real
def test_its_config_decides_as_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY_OF_TEAM_A", KEY)
    monkeypatch.setenv("KEY_OF_TEAM_B", "another-key-for-tests")
    (tmp_path / "minilm").symlink_to(ENCODER)
    small, large = Chats(lambda _: completion("small", logprobs=[-0.001])), Chats(lambda _: completion("large"))
    config = WHOLE.replace("http://127.0.0.1:8001/v1", small.url).replace("http://127.0.0.1:8002/v1", large.url)
    config = "\n".join(line for line in config.splitlines() if not line.startswith(("task:", "records:")))
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    key = {"authorization": f"Bearer {KEY}"}
    with gateway(tmp_path, config) as handle:
        hours = ask(handle.url, hello("at what time do you open on monday"), key)
        assert hours.json["choices"][0]["message"]["content"].startswith("We are open from 9")
        assert ask(handle.url, hello("my python loop never ends, fix it"), key).headers["x-rheostat-model"] == "large"
        assert ask(handle.url, hello("tell me about the sea"), key).headers["x-rheostat-model"] == "small"
        assert ask(handle.url, hello("tell me about the sea", tools=tools), key).headers["x-rheostat-model"] == "large"
    small.close()
    large.close()


def test_the_caching_guides_similar_questions_are_taken(tmp_path: Path) -> None:
    text = (DOCS / "caching.md").read_text()
    (block,) = re.findall(r"```yaml similar\n(.*?)```", text, re.DOTALL)
    (tmp_path / "minilm").mkdir()
    (tmp_path / "rheostat.yaml").write_text(block)
    assert load_config(str(tmp_path / "rheostat.yaml")).warnings == ()
