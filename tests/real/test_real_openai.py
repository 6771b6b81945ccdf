"""OpenAI's own client over Rheostat and two real llama.cpp servers: it gets what the servers themselves give it."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import openai_client
import pytest
from bench import llama

from rheostat.gateway.handle import ServerHandle

if not openai_client.installed():
    pytest.skip(openai_client.WANTED, allow_module_level=True)
if not llama.installed():
    pytest.skip(llama.WANTED, allow_module_level=True)

KEY, CLIENT = "sk-real-server/key+1", "a-client-key-of-ours"
OWN = {"id", "created", "timings"}  # of each answer alone
FIXED: dict[str, Any] = {"temperature": 0, "seed": 1, "max_tokens": 8, "extra_body": {"cache_prompt": False}}
PLAIN = [{"role": "system", "content": "You are brief."}, {"role": "user", "content": "Say hello, 你好 😀."}]
SCHEMA = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]}
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "chances": {"logprobs": True, "top_logprobs": 3},
    "stop": {"stop": ["o"]},
    "structured": {"response_format": {"type": "json_schema", "json_schema": {"name": "c", "schema": SCHEMA}}},
    "parts": {
        "messages": [{"role": "user", "content": [{"type": "text", "text": "One word:"}, {"type": "text", "text": "sky"}]}]
    },
    "tools": {
        "tools": [{"type": "function", "function": {"name": "choose", "parameters": SCHEMA}}],
        "tool_choice": "required",
        "max_tokens": 40,
    },
    "turns": {"messages": [*PLAIN, {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "And goodbye?"}]},
}


class Place(NamedTuple):
    openai: ModuleType
    roots: tuple[str, str]
    processes: tuple[subprocess.Popen[str], subprocess.Popen[str]]
    handle: ServerHandle

    def direct(self) -> Any:
        return self.openai.OpenAI(base_url=f"{self.roots[0]}/v1", api_key=KEY, max_retries=0)

    def routed(self, **more: Any) -> Any:
        return self.openai.OpenAI(base_url=f"{self.handle.url}/v1", api_key=CLIENT, max_retries=0, **more)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder: Path = tmp_path_factory.mktemp("openai")
    with (
        llama.served(512, KEY, 2) as (one, first),
        llama.served(512, KEY, 2) as (other, second),
        openai_client.client() as openai,
    ):
        (folder / "rheostat.yaml").write_text(f"""
task: chat
models:
  one: {{backend: chat, base_url: "{one}/v1", model: smollm2, api_key: "{KEY}", peers: [other]}}
  sure: {{backend: chat, base_url: "{one}/v1", model: smollm2, api_key: "{KEY}", confidence: mean_logprob}}
  inner: {{backend: gguf, file: "{llama.model_file()}", max_tokens: 8, stream: {{}}}}
  other: {{backend: chat, base_url: "{other}/v1", model: smollm2, api_key: "{KEY}", peers: [one]}}
routes:
  default: {{policy: one, models: [one, other]}}
  inner: {{policy: inner}}
  ruled: {{policy: {{chain: [{{rules: [{{contains: [goodbye], use: other}}]}}, one]}}}}
  sure: {{policy: {{cascade: {{stages: [sure, other], threshold: 0}}}}}}
  unsure: {{policy: {{cascade: {{stages: [sure, other], threshold: 1}}}}}}
  split: {{policy: {{split: {{arms: [{{use: one, share: 1}}, {{use: other, share: 1}}]}}}}}}
  length: {{policy: {{tiers: {{signal: length, cuts: [40], use: [one, other]}}}}}}
keys: [{{key: "{CLIENT}"}}]
""")
        with ServerHandle(str(folder / "rheostat.yaml")) as handle:
            yield Place(openai, (one, other), (first, second), handle)


def told(answer: Any) -> dict[str, Any]:
    return {name: value for name, value in answer.model_dump().items() if name not in OWN}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("route", ["default", "sure"])
def test_an_answer_is_the_servers_own(place: Place, route: str, case: str) -> None:
    asked = {**FIXED, "messages": PLAIN, **CASES[case]}
    direct = place.direct().chat.completions.create(model="smollm2", **asked)
    routed = place.routed().chat.completions.create(model=route, **asked)
    assert told(routed) == told(direct)
    assert routed.choices[0].message.content or routed.choices[0].message.tool_calls


@pytest.mark.parametrize("case", CASES)
def test_a_stream_is_the_servers_own(place: Place, case: str) -> None:
    asked = {**FIXED, "messages": PLAIN, **CASES[case], "stream": True, "stream_options": {"include_usage": True}}
    direct = [told(chunk) for chunk in place.direct().chat.completions.create(model="smollm2", **asked)]
    routed = [told(chunk) for chunk in place.routed().chat.completions.create(model="default", **asked)]
    assert routed == direct
    assert routed[-1]["usage"]["completion_tokens"] > 0


def test_the_client_that_awaits(place: Place) -> None:
    async def main() -> tuple[str, str]:
        async with place.openai.AsyncOpenAI(base_url=f"{place.handle.url}/v1", api_key=CLIENT) as client:
            whole, stream = await asyncio.gather(
                client.chat.completions.create(model="default", messages=PLAIN, **FIXED),
                client.chat.completions.create(model="default", messages=PLAIN, stream=True, **FIXED),
            )
            texts = [chunk.choices[0].delta.content or "" async for chunk in stream]
        return whole.choices[0].message.content, "".join(texts)

    whole, streamed = asyncio.run(main())
    assert whole == streamed != ""


def answered_by(place: Place, model: str, text: str, session: str = "") -> str:
    asked = {**FIXED, "max_tokens": 2, "messages": [{"role": "user", "content": text}]}
    headers = {"x-rheostat-session": session} if session else {}
    reply = place.routed().chat.completions.with_raw_response.create(model=model, extra_headers=headers, **asked)
    assert reply.parse().choices
    return str(reply.headers["x-rheostat-model"])


def test_who_is_asked(place: Place) -> None:
    assert answered_by(place, "ruled", "hello") == "one"
    assert answered_by(place, "ruled", "Goodbye!") == "other"
    assert answered_by(place, "sure", "hello") == "sure"
    assert answered_by(place, "unsure", "hello") == "other"
    assert answered_by(place, "length", "hello") == "one"
    assert answered_by(place, "length", "hello " * 20) == "other"
    by_session = {
        session: {answered_by(place, "split", f"turn {turn}", session) for turn in range(3)} for session in "abcdef"
    }
    assert all(len(models) == 1 for models in by_session.values())
    assert {model for models in by_session.values() for model in models} == {"one", "other"}


def test_errors_are_the_clients_own(place: Place) -> None:
    openai, ask = place.openai, place.routed().chat.completions.create
    with pytest.raises(openai.NotFoundError) as missing:
        ask(model="gpt-9", messages=PLAIN)
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.PermissionDeniedError):
        ask(model="one", messages=PLAIN)
    with pytest.raises(openai.AuthenticationError) as unknown:
        openai.OpenAI(base_url=f"{place.handle.url}/v1", api_key="sk-another", max_retries=0).chat.completions.create(
            model="default", messages=PLAIN
        )
    assert unknown.value.code == "invalid_api_key"
    with pytest.raises(openai.BadRequestError) as wrong:
        ask(model="default", messages=[])
    assert wrong.value.param == "messages"
    with pytest.raises(openai.BadRequestError):
        ask(model="default", messages=PLAIN, extra_body={"response_format": {"type": "nothing"}})
    with pytest.raises(openai.APIStatusError) as long:
        ask(model="default", messages=[{"role": "user", "content": "word " * 2000}])
    assert (long.value.status_code, long.value.code) == (413, "context_length_exceeded")
    with pytest.raises(openai.InternalServerError) as late:
        ask(model="default", messages=PLAIN, max_tokens=400, extra_headers={"x-rheostat-timeout-ms": "40"})
    assert late.value.status_code == 504
    with pytest.raises(openai.APITimeoutError):
        place.routed(timeout=0.05).chat.completions.create(model="default", messages=PLAIN, max_tokens=400)
    assert place.routed().models.list().data


def test_a_model_in_this_process_answers_and_streams(place: Place) -> None:
    ask = place.routed().chat.completions.create
    whole = ask(model="inner", messages=PLAIN)
    chunks = list(ask(model="inner", messages=PLAIN, stream=True))
    assert (whole.object, whole.model) == ("chat.completion", Path(llama.model_file()).stem)
    assert (whole.choices[0].finish_reason, whole.usage.completion_tokens) == ("length", 8)
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks]
    assert len(texts) > 2  # one that comes whole has two: its text, and its end
    assert "".join(texts).strip() == whole.choices[0].message.content.strip() != ""
    assert (chunks[0].choices[0].delta.role, chunks[-1].choices[0].finish_reason) == ("assistant", "length")


def test_the_program_of_the_guide(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "chat.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    program = program.replace("http://127.0.0.1:8080", place.handle.url).replace('api_key="any"', f'api_key="{CLIENT}"')
    program = program.replace("messages=", "temperature=0, max_tokens=8, messages=")
    exec(program, {})
    whole, _, streamed = capsys.readouterr().out.rpartition("\n")
    assert whole == streamed != ""


def test_a_server_that_dies_is_replaced(place: Place) -> None:  # the last test: it leaves one server
    place.processes[0].kill()
    place.processes[0].wait()
    for _ in range(3):
        done = place.routed().chat.completions.create(model="default", messages=PLAIN, **FIXED)
        assert done.choices[0].message.content
        texts = place.routed().chat.completions.create(model="default", messages=PLAIN, stream=True, **FIXED)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in texts) == done.choices[0].message.content
