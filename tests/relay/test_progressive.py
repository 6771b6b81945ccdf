"""A quick answer that a better model takes over, and turns within one answer: over scripted servers, through a router."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from relay_servers import Scripted, begins, event, scripted

from rheostat.config import load_config
from rheostat.engine.engine import Served
from rheostat.errors import ConfigError, RheostatError
from rheostat.pool import Model
from rheostat.pool.backend import Piece
from rheostat.router import Router
from rheostat.types import Chat

FAST = ("One", " fast", " sentence", ".", " Two", " fast", ".", " Three", " fast", ".")
CUES = {
    "strong": "strong", "strong_version": "1", "small": "fast", "small_version": "1", "at": "sentence", "share": 0.5,
    "cues": [{"cue": "so", "count": 9, "margin": 0.9, "own_margin": 0.8, "chosen": True},
             {"cue": "but", "count": 9, "margin": 0.2, "own_margin": 0.2, "chosen": False}],
}  # fmt: skip


def chat(**more: Any) -> Chat:
    body = {"messages": [{"role": "user", "content": "Go."}], **more}
    return Chat({name: Raw(json.dumps(value).encode()) for name, value in body.items()})


def config(fast: Scripted, strong: Scripted, joint: str, more: str = "") -> str:
    return f"""
task: chat
models:
  fast: {{backend: chat, base_url: "{fast.url}", model: f, continues: prefill, cost: 1, version: f1}}
  strong: {{backend: chat, base_url: "{strong.url}", model: s, continues: prefill, cost: 10{more}}}
  both: {joint}
routes:
  default: {{policy: both, deadline: 20s}}
"""


PROGRESSIVE = "{backend: progressive, fast: fast, strong: strong}"


class Heard:
    def __init__(self, pieces: list[Piece], served: Served | None, error: RheostatError | None) -> None:
        self.error, self.served = error, served
        self.text = "".join(piece.text for piece in pieces)
        frames = b"".join(piece.chunk for piece in pieces).decode().split("\n\n")
        self.chunks = [json.loads(frame.removeprefix("data: ")) for frame in frames if frame]
        said = "".join(c["choices"][0]["delta"].get("content", "") for c in self.chunks if c["choices"])
        assert said == self.text

    @property
    def spans(self) -> list[tuple[str, int, str, str]]:
        assert self.served is not None
        prediction = self.served.record.outcomes[0].prediction
        assert prediction is not None
        return [(span.model, span.tokens, span.why, span.failure) for span in prediction.spans]


def ask(folder: Path, text: str, row: Chat, check: Any = None, *, whole: bool = False) -> Heard:
    (folder / "rheostat.yaml").write_text(text)
    (folder / "cues.json").write_text(json.dumps(CUES))

    async def go() -> Heard:
        router = await Router.open(str(folder / "rheostat.yaml"))
        try:
            if whole:
                served = await router.serve(router.request(row))
                said = served.prediction
                pieces = [] if said is None else [Piece(said.label, chunk=event(said.label, None))]
                return Heard(pieces, served, served.error)
            stream = router.stream(router.request(row))
            pieces, error = [], None
            try:
                while (piece := await stream.take()) is not None:
                    pieces.append(piece)
            except RheostatError as failure:
                error = failure
            await stream.aclose()
            if check is not None:
                check(router.plan.pool.models)
            return Heard(pieces, stream.served, error)
        finally:
            await router.aclose()

    return asyncio.run(go())


def slow(*tokens: str) -> Iterator[str]:
    for token in tokens:
        time.sleep(0.01)
        yield token


@pytest.mark.parametrize("ahead", ["true", "false"])
def test_the_strong_model_takes_over_where_a_sentence_ends(tmp_path: Path, ahead: str) -> None:
    sent = threading.Event()

    def strong(body: Any) -> Iterator[str]:
        if body.get("max_tokens") == 1:
            sent.wait(5)
            time.sleep(0.1)
            yield "x"
        else:
            yield from (" Strong", " words", ".")

    def fast(_: Any) -> Iterator[str]:
        for place, token in enumerate(FAST):
            if place == 5 and ahead == "true":
                sent.set()
                time.sleep(0.5)
            yield token

    joint = PROGRESSIVE[:-1] + f", ahead: {ahead}}}"
    with scripted(fast) as one, scripted(strong) as two:
        heard = ask(tmp_path, config(one, two, joint), chat(stream_options={"include_usage": True}, max_tokens=50))
        begun = "One fast sentence. Two fast." if ahead == "true" else "One fast sentence."
        assert heard.text == f"{begun} Strong words."
        assert begins(two.asked[-1]) == begun
        written = 8 if ahead == "true" else 5  # of which the last said that the sentence had ended
        assert two.asked[-1]["max_tokens"] == 50 - written
    assert heard.served is not None
    wanted = [("fast", written, "begins", ""), ("strong", 3, "takes over", "")]
    assert heard.spans == ([("strong", 1, "reads ahead", "")] if ahead == "true" else []) + wanted
    assert heard.chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert heard.chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert heard.chunks[-1]["usage"]["completion_tokens"] == written + 3
    record = heard.served.record
    assert record.cost == (21 if ahead == "true" else 11)
    assert "fast sentence" not in repr(record)
    assert (record.selected_model, record.label) == ("both", "stop")


def test_who_does_not_stream_or_wants_what_cannot_be_handed_over_gets_the_strong_model(tmp_path: Path) -> None:
    with scripted(lambda _: FAST) as one, scripted(lambda _: ["Strong", "."]) as two:
        text = config(one, two, PROGRESSIVE)
        heard = ask(tmp_path, text, chat(), whole=True)
        assert heard.text == "Strong."
        assert heard.served is not None
        assert heard.served.record.cost == 10
        tools = [{"type": "function", "function": {"name": "f"}}]
        picture = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]}]
        prefilled = [{"role": "user", "content": "Go."}, {"role": "assistant", "content": "Well"}]
        for more in (
            {"tools": tools},
            {"messages": picture},
            {"messages": prefilled},
            {"response_format": {"type": "json_object"}},
            {"n": 2},
            {"logprobs": True},
        ):
            heard = ask(tmp_path, text, chat(**more))
            assert heard.spans[0][:1] == ("strong",)
        assert not one.asked
        assert two.asked[1]["tools"] == tools


def test_when_either_fails_the_other_writes_on(tmp_path: Path) -> None:
    broken = b'data: {"error": {"message": "out", "code": 500}}\n\n'
    with scripted(lambda _: slow(*FAST)) as one, scripted(lambda _: 500) as two:
        heard = ask(tmp_path, config(one, two, PROGRESSIVE), chat())
        assert heard.text == "".join(FAST)
        assert heard.spans == [("strong", 0, "reads ahead", "upstream_error"), ("fast", 10, "begins", "")]
        heard = ask(tmp_path, config(one, two, PROGRESSIVE[:-1] + ", ahead: false}"), chat())
        assert [span[2:] for span in heard.spans] == [
            ("begins", ""), ("takes over", "upstream_error"), ("the strong model failed", ""),
        ]  # fmt: skip
        assert heard.text.startswith("One fast sentence.One")  # what the script says to any beginning
    with scripted(lambda _: ["One", " fast", broken]) as one, scripted(lambda _: [" strong", "."]) as two:
        heard = ask(tmp_path, config(one, two, PROGRESSIVE), chat(max_tokens=9))
        assert heard.text == "One fast strong."
        assert ("fast", 2, "begins", "upstream_error") in heard.spans
        assert two.asked[-1]["max_tokens"] == 7
    with scripted(lambda _: 500) as one, scripted(lambda _: ["Strong", "."]) as two:
        heard = ask(tmp_path, config(one, two, PROGRESSIVE), chat())
        assert (heard.text, heard.error) == ("Strong.", None)
    with scripted(lambda _: 500) as one, scripted(lambda _: 500) as two:
        heard = ask(tmp_path, config(one, two, PROGRESSIVE), chat())
        assert (heard.text, heard.error is not None) == ("", True)


def test_breakers_and_places_of_the_parts_hold_and_everything_is_given_back(tmp_path: Path) -> None:
    def held(models: dict[str, Model]) -> None:
        assert models["strong"].breaker.name == "open"
        assert models["fast"].breaker.name == models["both"].breaker.name == "closed"
        assert not any(model.in_flight for model in models.values())
        assert models["fast"].latency_s > 0.0

    with scripted(lambda _: slow(*FAST)) as one, scripted(lambda _: 500) as two:
        text = config(one, two, PROGRESSIVE, ", breaker: {failureThreshold: 1}")
        heard = ask(tmp_path, text, chat(), held)
        assert (heard.text, heard.error) == ("".join(FAST), None)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(["a", "b", "ab", " a", ".", "ba"]), max_size=6),
    st.lists(st.sampled_from(["a", "b", "ab", " b"]), max_size=6),
)
def test_a_stop_text_ends_the_answer_wherever_the_seam_lies(first: list[str], second: list[str]) -> None:
    from rheostat.backends.writing import Writing
    from rheostat.types import Outcome, Prediction

    class Parts:
        async def ask(self, name: str, row: Any, timeout_s: float) -> Any:  # noqa: ARG002
            added = ""
            for token in first if name == "one" else second:
                before = len(added)
                added += token
                kept = row.until(added)
                if kept is not None:
                    added = added[: max(kept, before)]
                yield Piece(added[before:])
                if kept is not None:
                    break
            yield Outcome(name, Prediction(row.said + added or "-"))

    async def go() -> tuple[str, Any]:
        writing = Writing(Parts(), chat(stop=["bab"]), "both", 10.0)
        said = ""
        for name in ("one", "two"):
            writing.finish = None
            async for piece in writing.go_on(name, ""):
                said += piece.text
            if writing.finish == "stop" and "bab" in "".join(first if name == "one" else first + second):
                break
        for piece in writing.end() if writing.text.strip() else []:
            said += piece.text
        return said, writing.text

    said, text = asyncio.run(go())
    whole = "".join(first + second)
    assert said == text == whole.partition("bab")[0] or not text.strip()


def test_the_small_model_writes_what_begins_with_a_cue(tmp_path: Path) -> None:
    whole = ["Lead", " one", ".", " So", " hard", " words", ".", " But", " hard", ".", " So", " on", "."]

    def strong(body: Any) -> Iterator[str]:
        said = begins(body)
        if said.endswith("easy end."):
            yield from (" But", " hard", ".") if said.count("easy end.") == 1 else ()
            if said.count("easy end.") == 1:
                yield from (" So", " on", ".")
        else:
            yield from whole

    def small(body: Any) -> Iterator[str]:
        assert begins(body).endswith(" So")
        yield from (",", " an", " easy", " end", ".", " More", " of", " it", ".")

    joint = "{backend: relay, strong: strong, small: fast, cues: cues.json}"
    with scripted(small) as one, scripted(strong) as two:
        heard = ask(tmp_path, config(one, two, joint), chat(max_tokens=100))
    assert heard.text == "Lead one. So, an easy end. But hard. So, an easy end."
    assert [span[0] for span in heard.spans] == ["strong", "fast", "strong", "fast", "strong"]
    assert heard.spans[1][2] == "cue: so"
    assert heard.served is not None
    assert heard.served.record.cost == 3 * 10 + 2


def test_a_relay_goes_on_alone_when_one_model_fails_and_keeps_to_the_room(tmp_path: Path) -> None:
    joint = "{backend: relay, strong: strong, small: fast, cues: cues.json}"
    with (
        scripted(lambda _: 500) as one,
        scripted(lambda body: [" rest", "."] if begins(body) else ["Aha", ".", " So", " b", "."]) as two,
    ):
        heard = ask(tmp_path, config(one, two, joint), chat())
        assert heard.text == "Aha. So rest."
        assert heard.spans[1] == ("fast", 0, "cue: so", "upstream_error")
    tokens = [" x"] * 40
    with (
        scripted(lambda _: tokens) as one,
        scripted(lambda body: [" y"] * 40 if begins(body) else ["Aha", ".", " So", " b"]) as two,
    ):
        heard = ask(tmp_path, config(one, two, joint[:-1] + ", most: 5}"), chat(max_tokens=12))
        assert heard.text == "Aha. So" + " x" * 5 + " y" * 3  # of four read tokens of the first span one was not kept
        assert heard.chunks[-1]["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("joint", "told"),
    [
        ("{backend: progressive, fast: fast, strong: fast}", "name two"),
        ("{backend: progressive, fast: fast, strong: nobody}", "unknown model `nobody`"),
        ("{backend: progressive, fast: fast, strong: strong, labels: [a]}", "belongs to the models"),
        ("{backend: progressive, fast: fast, strong: silent}", "set its `continues`"),
        ("{backend: progressive, fast: fast, strong: words}", "no text that it could hand over"),
        ("{backend: relay, strong: strong, small: fast, cues: none.json}", "there is no file none.json"),
        ("{backend: progressive, fast: both, strong: strong}", "is made of others itself"),
    ],
)
def test_a_config_that_cannot_be_served_is_refused(tmp_path: Path, joint: str, told: str) -> None:
    with ExitStack() as stack:
        one, two = (stack.enter_context(scripted(lambda _: [])) for _ in range(2))
        more = f"  silent: {{backend: chat, base_url: '{one.url}', model: x}}\n  words: {{backend: template, label: x}}\n"
        text = config(one, two, joint).replace("routes:", f"{more}routes:")
        (tmp_path / "rheostat.yaml").write_text(text)
        with pytest.raises(ConfigError, match=told):
            load_config(str(tmp_path / "rheostat.yaml"))


def test_after_a_reload_the_new_parts_are_asked_and_a_refused_one_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "rheostat.yaml"

    async def said(router: Router) -> str:
        async with router.stream(router.request(chat())) as stream:
            return "".join([text async for text in stream])

    async def go(texts: list[str]) -> list[str]:
        path.write_text(texts[0])
        router = await Router.open(str(path))
        try:
            found = [await said(router)]
            joint = router.plan.pool["both"]
            for text in texts[1:]:
                path.write_text(text)
                taken = await router.reload()
                assert taken == ("unknown" not in text)
                found.append(await said(router))
            assert router.plan.pool["both"] is joint
            return found
        finally:
            await router.aclose()

    with ExitStack() as stack:
        old, new = (
            stack.enter_context(scripted(lambda _, name=name: [name, " begins", ".", " Then"])) for name in ("Old", "New")
        )  # type: ignore[misc]
        two = stack.enter_context(scripted(lambda _: [" Strong", "."]))
        before, after = (config(one, two, PROGRESSIVE[:-1] + ", ahead: false}") for one in (old, new))
        found = asyncio.run(go([before, after, after + "unknown: 1\n"]))
    assert found == ["Old begins. Strong.", "New begins. Strong.", "New begins. Strong."]
