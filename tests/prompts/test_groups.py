"""Groups of requests by example, with a real sentence encoder where there is one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from rheostat.cli.app import app
from rheostat.config import load_config
from rheostat.errors import ConfigError
from rheostat.signals import ScorerError
from rheostat.signals.groups import GroupScorer, GroupsScorerSettings
from rheostat.types import Request
from tests.chat.chat_servers import Chats, ask, gateway, hello, model

ENCODER = Path(__file__).parents[2] / ".cache" / "minilm"
real = pytest.mark.skipif(
    not (ENCODER / "encoder.onnx").is_file(), reason="python -m bench.semantic_cache fetches the encoder"
)
GROUPS = """
      billing: [I was charged twice, where is my invoice, refund my last payment, update my credit card, the bill is high]
      code: [fix this python function, why does my loop not end, write a unit test for it, explain this stack trace,
             refactor the class]
"""


class Fake:
    """An encoder of which the text is the vector: `1 0` is (1, 0)."""

    def embed(self, text: str) -> Any:
        vector = np.array([[float(part) for part in text.split()]], np.float32)
        return vector / max(float(np.linalg.norm(vector)), 1e-12)


def scorer(threshold: float = 0.5, **groups: list[list[float]]) -> GroupScorer:
    embedded = [np.array(rows, np.float32) / np.linalg.norm(rows, axis=1, keepdims=True) for rows in groups.values()]
    return GroupScorer(tuple(f"g.{name}" for name in groups), tuple(groups), Fake(), embedded, threshold)  # type: ignore[arg-type]


def asked(text: str) -> Request:
    return Request(id="r", data=text, text=text)


def test_the_nearest_group_has_the_similarity_and_the_others_nothing() -> None:
    two = scorer(a=[[1.0, 0.1], [1.0, -0.1]], b=[[0.0, 1.0]])
    assert two.score(asked("2 0")) == {"g.a": pytest.approx(1.0), "g.b": 0.0}
    assert two.score(asked("0 3")) == {"g.a": 0.0, "g.b": pytest.approx(1.0)}
    assert two.score(asked("1 0.9"))["g.a"] == pytest.approx(1 / np.hypot(1, 0.9), abs=1e-6)
    assert two.score(asked("-1 -1")) == {"g.a": 0.0, "g.b": 0.0}
    assert two.score(asked("   ")) == {"g.a": 0.0, "g.b": 0.0}
    assert two.score(asked("nan 1")) == {"g.a": 0.0, "g.b": 0.0}
    with pytest.raises(ScorerError, match=r"g\.a"):
        two.score(asked("no numbers"))


@given(st.lists(st.floats(-1.0, 1.0, width=32), min_size=2, max_size=2), st.floats(0.01, 1.0))
def test_at_most_one_group_and_never_under_the_threshold(vector: list[float], threshold: float) -> None:
    two = scorer(threshold, a=[[1.0, 0.0]], b=[[0.0, 1.0]])
    found = two.compared(np.array(vector, np.float32))
    said = [value for value in found.values() if value]
    assert len(said) <= 1
    assert all(threshold <= value <= 1.0 for value in said)
    assert set(found) == {"g.a", "g.b"}


def test_what_the_examples_say_of_themselves() -> None:
    told = scorer(a=[[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]], b=[[0.0, 1.0], [0.1, 1.0]], c=[[-1.0, 0.0]]).quality()
    assert (told.judged, told.right, told.none, dict(told.confused)) == (5, 4, 0, {("a", "b"): 1})
    assert told.lines()[1] == "1 of `a` would be taken for `b`"
    far = scorer(0.99, a=[[1.0, 0.0], [0.0, 1.0]]).quality()
    assert (far.judged, far.right, far.none) == (2, 0, 2)
    assert "too few" in scorer(a=[[1.0, 0.0]]).quality().lines()[0]


@real
def test_a_real_encoder_tells_them_apart(tmp_path: Path) -> None:
    settings = GroupsScorerSettings(
        encoder=str(ENCODER), threshold=0.3,
        groups={"billing": ("I was charged twice", "where is my invoice", "refund my last payment", "my bill is too high"),
                "code": ("fix this python function", "why does my loop not end", "write a unit test", "explain this error")},
    )  # fmt: skip
    made = settings.open("topic", str(tmp_path))
    for text, group in (
        ("you took the money two times", "topic.billing"), ("there is a bug in my javascript program", "topic.code"),
        ("what a lovely sunset over the sea", ""),
    ):  # fmt: skip
        found = made.score(asked(text))
        assert [name for name, value in found.items() if value] == ([group] if group else []), (text, found)


def served(weak: Chats, strong: Chats) -> str:
    return f"""
models: {{weak: {model(weak)}, strong: {model(strong)}}}
signals:
  topic:
    scorer: groups
    encoder: '{ENCODER}'
    threshold: 0.3
    groups:{GROUPS}
routes:
  default:
    policy:
      chain:
        - rules:
            - {{name: program code, when: 'signals["topic.code"] > 0', use: strong}}
        - weak
"""


@real
def test_rules_read_the_group_of_a_conversation_and_check_tells_how_good_the_examples_are(tmp_path: Path) -> None:
    weak, strong = Chats(), Chats()
    with gateway(tmp_path, served(weak, strong)) as handle:
        assert ask(handle.url, hello("my python loop never stops")).headers["x-rheostat-model"] == "strong"
        assert ask(handle.url, hello("send me the invoice again")).headers["x-rheostat-model"] == "weak"
        assert ask(handle.url, hello("tell me about the sea")).headers["x-rheostat-model"] == "weak"
    done = CliRunner().invoke(app, ["check", str(tmp_path / "rheostat.yaml"), "--load"])
    assert done.exit_code == 0, done.output
    assert "signal topic: of 10 examples, each left out in turn" in done.output
    data = CliRunner().invoke(app, ["check", str(tmp_path / "rheostat.yaml"), "--load", "--json"])
    assert json.loads(data.stdout)["groups"]["topic"][0].startswith("of 10 examples")
    weak.close()
    strong.close()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("groups: {}", "`groups` is empty"),
        ("groups: {a: []}", "no example of `a`"),
        ("groups: {a: [' ']}", "no example of `a`"),
        ("groups: {'a\"b': [x]}", "no quotes"),
        ("groups: {a: [x]}, threshold: 0", "`threshold`"),
        ("groups: {a: [x]}", "there is no file"),
    ],
)
def test_groups_that_make_no_sense_are_refused(more: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "rheostat.yaml"
    path.write_text(
        f"models: {{m: {{backend: template, label: a}}}}\nroutes: {{default: {{policy: m}}}}\n"
        f"signals: {{t: {{scorer: groups, encoder: nowhere, {more}}}}}\n"
    )
    with pytest.raises(ConfigError, match=told):
        load_config(str(path))


def test_a_group_that_is_not_there_is_named_when_the_config_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "rheostat.yaml"
    (tmp_path / "e").mkdir()
    path.write_text(
        "models: {m: {backend: template, label: a}}\nsignals: {t: {scorer: groups, encoder: e, groups: {code: [x]}}}\n"
        "routes: {default: {policy: {chain: [{rules: [{when: 'signals[\"t.cod\"] > 0', use: m}]}, m]}}}\n"
    )
    with pytest.raises(ConfigError, match=r"did you mean `t\.code`"):
        load_config(str(path))
