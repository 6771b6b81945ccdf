"""The guide of several models in one answer: its configs are served, its command learns, over scripted servers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from relay_servers import begins, scripted

from rheostat.config import load_config
from rheostat.gateway.handle import ServerHandle
from rheostat.types.span import Span

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "several-models-one-answer.md").read_text()
CONFIGS = dict(re.findall(r"```yaml file=(\S+)\n(.*?)```", GUIDE, re.DOTALL))
ANSWER = re.findall(r" ?\w+|\.", "First words. So far off. But no more. So it is. But why.")


def strong(body: Any) -> Iterator[str]:
    said = begins(body)
    if said.endswith("easy."):
        yield from (" But", " no", " more", ".") if said.count("easy.") == 1 else ()
    else:
        yield from ANSWER


def small(body: Any) -> Iterator[str]:
    yield from (" this", " is", " easy", ".") if begins(body).endswith("So") else (" hard", ".", " Then")


def stream(url: str) -> str:
    body = {"model": "default", "messages": [{"role": "user", "content": "Go."}], "stream": True}
    request = urllib.request.Request(
        f"{url}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=20) as reply:
        events = [line.removeprefix("data: ") for line in reply.read().decode().split("\n\n") if line]
    assert events[-1] == "[DONE]"
    return "".join(json.loads(event)["choices"][0]["delta"].get("content", "") for event in events[:-1])


def run(folder: Path, *words: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-m", "rheostat", *words], cwd=folder, capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_the_guide_runs(tmp_path: Path) -> None:
    (command,) = re.findall(r"```sh run\nrheostat (.*?)\n```", GUIDE)
    (tmp_path / "questions.txt").write_text("".join(f"Question {number}?\n" for number in range(8)))
    with (
        scripted(strong, sure=lambda _: 0.8) as large,
        scripted(small, sure=lambda body: 0.99 if begins(body).endswith("So") else 0.6) as fast,
    ):
        for name in ("progressive.yaml", "relay.yaml"):
            text = CONFIGS[name].replace("http://127.0.0.1:8001/v1", fast.url).replace("http://127.0.0.1:8002/v1", large.url)
            (tmp_path / name).write_text(text + "server: {port: 0}\n")
        said = run(tmp_path, *command.split())
        assert re.search(r"^so +12 +0\.98 +0\.98 +0\.60 +yes$", said, re.MULTILINE), said
        assert re.search(r"^but +12 +0\.20 +0\.20 +0\.60$", said, re.MULTILINE), said
        with ServerHandle(str(tmp_path / "relay.yaml")) as handle:
            assert stream(handle.url) == "First words. So this is easy. But no more."
        told = run(tmp_path, "explain", "--last", "--config", "relay.yaml")
        assert re.search(r"small \(cue: so\): 4 tokens; .*cost 1\n", told), told
        assert "easy" not in told
        with ServerHandle(str(tmp_path / "progressive.yaml")) as handle:
            assert stream(handle.url).startswith(" hard.")


def test_a_mixture_of_the_guide_is_a_config(tmp_path: Path) -> None:
    (tmp_path / "mixture.yaml").write_text(CONFIGS["mixture.yaml"])
    model: Any = load_config(str(tmp_path / "mixture.yaml")).config.models["answer"]
    assert (model.second, model.by, model.weight) == ("large.gguf", "margin", 0.7)
    assert len(CONFIGS) == GUIDE.count("```yaml")


def test_a_span_says_nothing_of_the_text() -> None:
    assert set(Span.__struct_fields__) == {"model", "version", "tokens", "why", "elapsed_s", "first_s", "cost", "failure"}


def test_calibrating_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "questions.txt").write_text("Why?\n")
    text = re.sub(r"  answer: .*\n", "", CONFIGS["progressive.yaml"]).replace("policy: answer", "policy: large")
    (tmp_path / "rheostat.yaml").write_text(text.replace(", continues: prefill", ""))
    with pytest.raises(AssertionError, match="set its `continues`"):
        run(tmp_path, "relay", "calibrate", "questions.txt", "--strong", "large", "--small", "small")
