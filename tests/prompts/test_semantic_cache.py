"""Answers to similar questions: where nothing but the words differs, never somebody else's, never more than have room."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from rheostat.cache.answers import Question
from rheostat.cache.semantic import Near, Semantic, SemanticSettings
from rheostat.config import load_config
from rheostat.errors import ConfigError
from rheostat.types import Chat, Request
from tests.chat.chat_servers import Chats, ask, completion, gateway, hello, model, record
from tests.prompts.test_groups import ENCODER, real

QUESTION = Question(salt="v1")
A, B = {"authorization": "Bearer key-of-tenant-a-1"}, {"authorization": "Bearer key-of-tenant-b-1"}
KEYS = "keys: [{key: key-of-tenant-a-1, tenant: a}, {key: key-of-tenant-b-1, tenant: b}]\n"


class Fake:
    def fits(self, text: str) -> bool:
        return len(text) < 50

    def embed(self, text: str) -> Any:
        return np.array([[1.0, 0.0]] if text.startswith("a") else [[0.0, 1.0]], np.float32)


def semantic(entries: int = 100, similarity: float = 0.9) -> Semantic:
    return Semantic(SemanticSettings(encoder="e", entries=entries, similarity=similarity), Fake())


def asked(text: Any, tenant: str | None = None, before: tuple[Any, ...] = (), **fields: Any) -> Request:
    whole = {"messages": [*before, {"role": "user", "content": text}], **fields}
    chat = Chat({name: Raw(msgspec.json.encode(value)) for name, value in whole.items()})
    return Request(id="r", data=chat, text=chat["text"], tenant=tenant)


def frame(request: Request, question: Question = QUESTION) -> bytes | None:
    near = semantic().near(question, request)
    return None if near is None else near.frame


SYSTEM = {"role": "system", "content": "be brief"}


def test_only_the_text_may_differ() -> None:
    plain = frame(asked("a1"))
    assert plain is not None
    same = [asked("a2"), asked("b"), asked([{"type": "text", "text": "x"}]), asked("a1", user="u", stream=True)]
    assert [frame(each) for each in same] == [plain] * len(same)
    others = [
        asked("a1", tenant="t"), asked("a1", temperature=0), asked("a1", before=(SYSTEM,)), asked("a1", max_tokens=5),
        asked("a1", response_format={"type": "json_object"}), msgspec.structs.replace(asked("a1"), max_cost=1.0),
    ]  # fmt: skip
    frames = [frame(each) for each in others] + [frame(asked("a1"), Question(salt="v2"))]
    assert None not in frames
    assert len({plain, *frames}) == len(frames) + 1


PICTURE = {"type": "image_url", "image_url": {"url": "data:"}}
SOUND = {"type": "input_audio", "input_audio": {}}


@pytest.mark.parametrize(
    "request_",
    [
        asked("a", tools=[{"type": "function"}]), asked([PICTURE, {"type": "text", "text": "a"}]),
        asked([SOUND, {"type": "text", "text": "a"}]), asked(" "), asked("a" * 60),
        asked("a", before=({"role": "user", "content": "x"}, {"role": "assistant", "content": "y"})),
        asked("a", before=({"role": "tool", "content": "x"},)),
        msgspec.structs.replace(asked("a"), data={"text": "a"}),
    ],
)  # fmt: skip
def test_what_has_no_similar_questions(request_: Request) -> None:
    assert frame(request_) is None


def test_the_nearest_is_found_and_forgotten() -> None:
    one = semantic()
    assert one.nearest(Near(b"f", np.array([1.0, 0.0], np.float32))) is None
    for number, angle in enumerate((0.0, 0.2, 0.4)):
        one.add(Near(b"f", np.array([np.cos(angle), np.sin(angle)], np.float32)), b"%d" % number)
    at = Near(b"f", np.array([np.cos(0.25), np.sin(0.25)], np.float32))
    found = one.nearest(at)
    assert found == (b"1", pytest.approx(np.cos(0.05)))
    assert one.nearest(at._replace(frame=b"g")) is None
    assert one.nearest(Near(b"f", np.array([0.0, 1.0], np.float32))) is None
    one.forget(at, b"1")
    assert (one.nearest(at) or (b"",))[0] == b"2"
    one.forget(at, b"1")
    assert len(one) == 2


@given(
    st.lists(st.tuples(st.sampled_from([b"f", b"g", b"h"]), st.integers(0, 30), st.booleans()), max_size=80),
    st.integers(1, 8),
)
def test_never_more_than_there_is_room_for_and_every_row_is_its_keys(moves: list[Any], entries: int) -> None:
    one = semantic(entries, 1.0)
    dice = np.random.default_rng(1)
    vectors = dice.normal(size=(31, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    for name, number, adds in moves:
        near = Near(name, vectors[number])
        (one.add if adds else one.forget)(near, b"%d" % number)
        assert len(one) == sum(len(each.keys) for each in one._frames.values()) <= entries
        for each in one._frames.values():
            for row, key in enumerate(each.keys):
                assert np.array_equal(each.rows[row], vectors[int(key)])


def config(server: Chats, semantic: str = "", more: str = "") -> str:
    near = f"semantic: {{encoder: '{ENCODER}', similarity: 0.8{semantic}}}"
    return f"models: {{m: {model(server)}}}\nroutes: {{default: {{policy: m, cache: {{ttl: 60s, {near}{more}}}}}}}\n{KEYS}"


@real
def test_over_http_a_similar_question_has_the_same_answer_and_the_header_says_so(tmp_path: Path) -> None:
    server = Chats(lambda body: completion(f"answer to {body['messages'][-1]['content']}"))
    first, similar = "How do I reset my password?", "how can I reset my password"
    with gateway(tmp_path, config(server)) as handle:
        words = []
        for text, key, more in (
            (first, A, {}), (first, A, {}), (similar, A, {}), (similar, B, {}), (similar, A, {"temperature": 0.5}),
            ("What is the capital of France?", A, {}), (similar, A, {"tools": [{"type": "function"}]}),
            (similar, A, {"stream": True}),
        ):  # fmt: skip
            reply = ask(handle.url, hello(text, **more), key)
            assert reply.status == 200
            words.append(reply.headers["x-rheostat-cache"])
            if words[-1] == "semantic-hit" and not more:
                assert reply.json["choices"][0]["message"]["content"] == f"answer to {first}"
                assert 0.8 <= float(reply.headers["x-rheostat-similarity"]) < 1.0
                assert int(reply.headers["age"]) >= 0
                kept = record(tmp_path, reply)
                assert kept.similarity == pytest.approx(float(reply.headers["x-rheostat-similarity"]), abs=1e-3)
                assert kept.cache == "semantic-hit"
        assert words == ["miss", "hit", "semantic-hit", "miss", "miss", "miss", "miss", "semantic-hit"]
        assert b"answer to How do I reset" in reply.body
        fresh = ask(handle.url, hello(similar), {**A, "cache-control": "no-cache"})
        assert fresh.headers["x-rheostat-cache"] == "bypass"
        assert fresh.json["choices"][0]["message"]["content"] == f"answer to {similar}"
    server.close()


@real
def test_an_answer_that_is_not_good_is_not_given_to_similar_questions(tmp_path: Path) -> None:
    server = Chats(lambda _: (500, b"{}"))
    with gateway(tmp_path, config(server)) as handle:
        assert ask(handle.url, hello("How do I reset my password?"), A).status == 502
        server.answer = lambda _: completion("good")
        reply = ask(handle.url, hello("how can I reset my password"), A)
        assert (reply.status, reply.headers["x-rheostat-cache"]) == (200, "miss")
    server.close()


@real
def test_what_is_no_longer_kept_is_not_given(tmp_path: Path) -> None:
    server = Chats()
    with gateway(tmp_path, config(server).replace("ttl: 60s", "ttl: 1ms")) as handle:
        for text in ("How do I reset my password?", "how can I reset my password"):
            assert ask(handle.url, hello(text), A).headers["x-rheostat-cache"] == "miss"
    server.close()


@pytest.mark.parametrize(
    ("head", "near", "told"),
    [
        ("", "{encoder: .}", "needs `task: chat`"),
        ("task: chat\n", "{encoder: nowhere}", "there is no folder"),
        ("task: chat\n", "{encoder: ., similarity: 0.3}", "between 0.5 and 1"),
        ("task: chat\n", "{}", "`encoder`"),
    ],
)
def test_settings_that_make_no_sense_are_refused(head: str, near: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "rheostat.yaml"
    route = f"{{policy: m, cache: {{semantic: {near}}}}}"
    path.write_text(f"{head}models: {{m: {{backend: template, label: a}}}}\nroutes: {{default: {route}}}\n")
    with pytest.raises(ConfigError, match=told):
        load_config(str(path))
