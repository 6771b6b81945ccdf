"""What a `gguf` model may say in a config, and what it is told where that cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from rheostat.backends import gguf
from rheostat.backends.chat_prompt import ChatSettings, instruction, messages
from rheostat.backends.gguf import GgufModel
from rheostat.backends.gguf_file import GgufFacts
from rheostat.backends.openai import OpenAIModel
from rheostat.errors import ConfigError, MissingExtra

FACTS = GgufFacts("llama", 1000, 4096, 100, True)


def refused(monkeypatch: pytest.MonkeyPatch, facts: GgufFacts = FACTS, **settings: Any) -> str:
    monkeypatch.setattr(gguf, "find_spec", lambda name: name)
    monkeypatch.setattr(gguf, "read_gguf", lambda _: facts)
    with pytest.raises(ConfigError) as caught:
        GgufModel(**{"file": "m.gguf", **settings}).open("")
    return str(caught.value.problems[0])


def test_without_the_extra_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf, "find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=r"pip install 'rheostat\[gguf\]'"):
        GgufModel(file="m.gguf").open("")


def test_a_file_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf, "find_spec", lambda name: name)
    (tmp_path / "m.gguf").write_bytes(b"<html>not found</html>")
    with pytest.raises(ConfigError, match=r"file: m\.gguf: it is no GGUF file"):
        GgufModel(file="m.gguf").open(str(tmp_path))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"context": 5000}, "context: m.gguf was trained for 4096 tokens, got 5000"),
        ({"max_tokens": 2048}, "max_tokens: an answer of 2048 tokens leaves no room for a prompt in a context of 2048"),
        ({"context": 100, "max_tokens": 100}, "leaves no room for a prompt in a context of 100"),
        ({"template": "none.jinja"}, "template: none.jinja cannot be read"),
    ],
)
def test_what_does_not_fit_the_file(monkeypatch: pytest.MonkeyPatch, settings: Any, told: str) -> None:
    assert told in refused(monkeypatch, **settings)


def test_a_base_model_needs_a_template(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "template: m.gguf brings no chat template" in refused(monkeypatch, FACTS._replace(has_template=False))


def test_what_would_fill_the_memory_is_refused_before_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    told = refused(monkeypatch, FACTS._replace(token_bytes=1 << 30), context=4096, parallel=4)
    assert "its context 16,777,216 MiB, of which" in told
    assert "lower `context` or `parallel`" in told


@pytest.mark.parametrize(
    "settings",
    [
        {"parallel": 0}, {"threads": 0}, {"prompt_batch": 8}, {"temperature": -1}, {"stop": [""]}, {"confidence": "sure"},
        {"labels": ["a", "b"], "stream": {}}, {"run": "inline"}, {"context": -1}, {"seed": -1}, {"max_tokens": 0},
        {"file": 1}, {"run": "process", "stream": {}},
    ],
)  # fmt: skip
def test_what_no_file_makes_right(settings: Any) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"backend": "gguf", "file": "m.gguf", **settings}, GgufModel)


def test_it_is_asked_in_the_words_that_a_server_is_asked_in() -> None:
    said: list[ChatSettings] = [
        OpenAIModel(base_url="http://x/v1", model="m", labels=("a", "b"), **more) for more in ({}, {"prompt": "Which?"})
    ]
    own = [GgufModel(file="m.gguf", labels=("a", "b"), **more) for more in ({}, {"prompt": "Which?"})]
    assert [instruction(each, each.labels) for each in said] == [instruction(each, each.labels) for each in own]
    assert messages("", "x \ud800") == [{"role": "user", "content": "x \ufffd"}]
    assert messages("Which?", {"stars": 5})[1] == {"role": "user", "content": '{"stars":5}'}
