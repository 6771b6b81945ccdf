"""What conversations cost: by their tokens where these are told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from chat_servers import Chats, ask, chunk, completion, gateway, hello, model, record

from rheostat.backends.price import Price
from rheostat.config import load_config

PRICED = "price: {input: 10, output: 100}, cost: 7"
CALL = (5 * 10 + 2 * 100) / 1e6  # the usage that `completion` tells
USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}


@pytest.fixture
def servers() -> Iterator[tuple[Chats, Chats]]:
    pair = Chats(), Chats()
    yield pair
    for server in pair:
        server.close()


def test_the_price_of_tokens() -> None:
    price = Price(input=2.0, output=8.0)
    assert price.of(b'{"usage":{"prompt_tokens":1000000,"completion_tokens":500000}}') == 6.0
    assert price.of(b'{"usage":{"prompt_tokens":0}}') == 0.0
    for untold in (None, "text", b"{}", b'{"usage":null}', b"no json", b'{"usage":{"prompt_tokens":-1}}', b'{"usage":3}'):
        assert price.of(untold) is None
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="`output`"):
            Price(input=0.0, output=wrong)


def test_every_call_is_paid_by_its_tokens_and_one_that_tells_none_by_its_cost(
    servers: tuple[Chats, Chats], tmp_path: Path
) -> None:
    weak, strong = servers
    weak.answer = lambda _: completion("weak", logprobs=[-2.0])
    config = f"""
models: {{weak: {model(weak, PRICED + ", confidence: mean_logprob")}, strong: {model(strong, PRICED)}}}
routes:
  default: {{policy: {{cascade: {{stages: [weak, strong], threshold: 0.9}}}}}}
  alone: {{policy: strong, models: [strong], fallback: {{retry: 1}}}}
"""
    untold = json.loads(completion("b"))
    del untold["usage"]
    with gateway(tmp_path, config) as handle:
        assert record(tmp_path, ask(handle.url, hello())).cost == pytest.approx(2 * CALL)
        strong.answer = lambda _: json.dumps(untold).encode()
        assert record(tmp_path, ask(handle.url, {**hello(), "model": "alone"})).cost == 7
        answers = iter([(500, b"{}"), completion("a")])
        strong.answer = lambda _: next(answers)
        assert record(tmp_path, ask(handle.url, {**hello(), "model": "alone"})).cost == pytest.approx(7 + CALL)


def test_a_streams_usage_is_asked_for_and_kept_from_a_client_that_did_not(
    servers: tuple[Chats, Chats], tmp_path: Path
) -> None:
    server, _ = servers
    said = [chunk({"role": "assistant", "content": "a"}), chunk({}, "stop"), chunk(None, usage=USAGE), b"data: [DONE]\n\n"]
    server.answer = lambda _: said
    with gateway(tmp_path, f"models: {{m: {model(server, PRICED)}}}\nroutes: {{default: {{policy: m}}}}\n") as handle:
        plain = ask(handle.url, hello(stream=True))
        assert plain.body == said[0] + said[1] + said[3]
        assert record(tmp_path, plain).cost == pytest.approx(CALL)
        wanted = ask(handle.url, hello(stream=True, stream_options={"include_usage": True}))
        assert wanted.body == b"".join(said)
    assert [json.loads(body)["stream_options"] for body in server.asked] == [{"include_usage": True}] * 2


def test_a_price_without_a_cost_is_warned_about(tmp_path: Path) -> None:
    path = tmp_path / "rheostat.yaml"
    path.write_text(
        "task: chat\nmodels: {m: {backend: chat, base_url: 'http://x/v1', model: m, price: {input: 1, output: 2}}}\n"
        "routes: {default: {policy: m}}\n"
    )
    assert any("what a typical call costs" in str(warning) for warning in load_config(str(path)).warnings)
