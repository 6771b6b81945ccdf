"""How sure a language model was: by its tokens' chances, and calibrated by what was judged later."""

from __future__ import annotations

import asyncio
import json
import math
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench import llama
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from rheostat.backends.token_confidence import NEEDED, TokenConfidence, confidence_of
from rheostat.cli.app import app
from rheostat.lab.calibration import CalibrationError, calibrate_judged
from rheostat.lab.judged import judged_answers
from rheostat.pool.backend import Piece, Reply, Row, StreamingBackend
from rheostat.signals import calibrated
from rheostat.signals.calibrator import Platt, load_calibrator
from rheostat.telemetry import SqliteSink
from rheostat.types import Attempt, Feedback, InputSummary, Outcome, Prediction, RouteRecord
from tests.chat.chat_servers import Chats, ask, completion, gateway, hello, model


def place(*chances: float) -> dict[str, Any]:
    logs = [{"token": "t", "logprob": math.log(chance)} for chance in chances]
    return {**logs[0], "top_logprobs": logs}


def test_entropy_by_hand() -> None:
    assert confidence_of([place(1.0, 1e-300)], "entropy") == pytest.approx(1.0)
    assert confidence_of([place(0.2, 0.2, 0.2, 0.2, 0.2)], "entropy") == pytest.approx(1 - math.log(5) / math.log(6))
    even = -(0.5 * math.log(0.5) + 2 * 0.25 * math.log(0.25)) / math.log(3)  # .5, .25, and .25 that is left
    assert confidence_of([place(0.5, 0.25)], "entropy") == pytest.approx(1 - even)
    assert confidence_of([place(1.0, 1e-300), place(0.5, 0.25)], "entropy") == pytest.approx(1 - even / 2)
    assert confidence_of([place(0.7000001, 0.3)], "entropy") == pytest.approx(
        1 - 0.6108643 / math.log(3), abs=1e-5
    )  # rounded chances


@pytest.mark.parametrize(
    "token",
    [{}, place(1.0), {"logprob": -1.0}, {"top_logprobs": "x"}, {"top_logprobs": [{"logprob": 1.0}, {"logprob": -1}]}],
)
def test_what_tells_no_spread_gives_no_confidence(token: Any) -> None:
    assert confidence_of([place(0.6, 0.3), token], "entropy") is None


@given(st.lists(st.lists(st.floats(1e-9, 1.0), min_size=2, max_size=20), min_size=1, max_size=5))
def test_every_kind_lies_between_0_and_1_and_sharper_chances_are_surer(tokens: list[list[float]]) -> None:
    whole = [[value / sum(chances) for value in chances] for chances in tokens]
    kinds: tuple[TokenConfidence, ...] = ("mean_logprob", "margin", "entropy")
    for kind in kinds:
        sure = confidence_of([place(*chances) for chances in whole], kind)
        assert sure is not None
        assert 0.0 <= sure <= 1.0
    sharper = [[value**2 / sum(each**2 for each in chances) for value in chances] for chances in whole]
    before = confidence_of([place(*chances) for chances in whole], "entropy")
    after = confidence_of([place(*chances) for chances in sharper], "entropy")
    assert before is not None
    assert after is not None
    assert after >= before - 1e-9


def test_a_cascade_on_entropy_asks_for_five_alternatives_which_the_client_does_not_see(tmp_path: Path) -> None:
    weak, strong = Chats(), Chats()
    strong.answer = lambda _: completion("strong")
    weak.answer = lambda body: chances(0.9, 0.05) if "easy" in str(body) else chances(0.3, 0.3)
    config = (
        f"models: {{weak: {model(weak, 'confidence: entropy')}, strong: {model(strong)}}}\n"
        "routes: {default: {policy: {cascade: {stages: [weak, strong], threshold: 0.5}}}}\n"
    )
    with gateway(tmp_path, config) as handle:
        easy = ask(handle.url, hello("easy"))
        assert easy.json["choices"][0]["message"]["content"] == "weak"
        assert "logprobs" not in easy.json["choices"][0]
        assert ask(handle.url, hello("hard")).json["choices"][0]["message"]["content"] == "strong"
    assert [json.loads(body)["top_logprobs"] for body in weak.asked] == [NEEDED["entropy"]] * 2
    weak.close()
    strong.close()


def chances(*values: float) -> bytes:
    whole = json.loads(completion("weak"))
    whole["choices"][0]["logprobs"] = {"content": [place(*values)]}
    return json.dumps(whole).encode()


@pytest.mark.skipif(not llama.installed(), reason=llama.WANTED)
def test_a_real_model_is_surer_of_what_it_is_told_to_repeat(tmp_path: Path) -> None:
    with (
        llama.served(context=512) as (root, _),
        gateway(
            tmp_path,
            f"models: {{m: {{backend: chat, base_url: '{root}/v1', model: m, confidence: entropy}}}}\n"
            "routes: {default: {policy: m}}\n",
        ) as handle,
    ):
        said = []
        for question in ("Repeat exactly: 1 2 3 4 5 6 7 8 9 10 11 12", "Write the first words of a strange poem"):
            reply = ask(handle.url, hello(question, temperature=0, max_tokens=12))
            assert reply.status == 200
            said.append(sure_of(tmp_path, reply.headers["x-rheostat-request-id"]))
    assert 0.0 <= said[1] < said[0] <= 1.0


def sure_of(folder: Path, request_id: str) -> float:
    from rheostat.telemetry import SqliteReader

    until = time.monotonic() + 10
    while time.monotonic() < until:
        reader = SqliteReader(folder / "records.db")
        found = reader.get(request_id)
        reader.close()
        if found is not None:
            (outcome,) = found.outcomes
            assert outcome.confidence is not None
            return outcome.confidence
        time.sleep(0.02)
    raise AssertionError("no record came")


class Streaming:
    labels: tuple[str, ...] | None = None

    async def apredict(self, rows: Sequence[Row], timeout_s: float) -> Sequence[Reply]:  # noqa: ARG002
        return [Prediction("a", 0.5) for _ in rows]

    async def astream(self, row: Row, timeout_s: float) -> AsyncIterator[Piece]:  # noqa: ARG002
        try:
            yield Piece("a", chunk=b"a")
            yield Piece(finish="stop", reply=Prediction("a", 0.5))
        finally:
            self.closed = True

    async def aclose(self) -> None:
        pass


def test_a_calibrated_model_still_streams() -> None:
    inner = Streaming()
    model = calibrated(inner, Platt(a=1.0, b=1.0))
    assert isinstance(model, StreamingBackend)

    async def run() -> None:
        pieces = [piece async for piece in model.astream("x", 1.0)]
        assert pieces[0] == Piece("a", chunk=b"a")
        reply = pieces[1].reply
        assert isinstance(reply, Prediction)
        assert reply.confidence == pytest.approx(1 / (1 + math.exp(-1)))
        inner.closed = False
        source = model.astream("x", 1.0)
        await anext(source)
        await source.aclose()  # type: ignore[attr-defined]
        assert inner.closed

    asyncio.run(run())


def told(count: int) -> Iterator[tuple[RouteRecord, Feedback]]:
    """A model that is far too sure: right in two of three cases where it says .97, in one of four where it says .8."""
    dice = np.random.default_rng(7)
    for number in range(count):
        sure = 0.97 if dice.random() < 0.6 else 0.8
        right = bool(dice.random() < (0.66 if sure > 0.9 else 0.25))
        said = Prediction("stop", sure)
        outcome = Outcome("weak", said, None, (Attempt("weak", 0.0, 0.1),), "weak")
        yield (
            RouteRecord(
                id=f"r{number}", wall=1.0, route="default", status="ok", label="stop", selected_model="weak",
                weights={"weak": 1.0}, outcomes=(outcome,), input=InputSummary("chat", 3, "h"),
            ),
            Feedback(request_id=f"r{number}", reward=float(right)),
        )  # fmt: skip


def test_what_users_judged_calibrates_a_conversations_model(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    sink = SqliteSink(path)
    entries = [entry for pair in told(2000) for entry in pair]
    sink.write(entries)
    sink.close()
    done = CliRunner().invoke(app, ["calibrate", str(path), "--model", "weak", "--out", str(tmp_path / "weak.json")])
    assert done.exit_code == 0, done.output
    assert "judged answers" in done.output
    fitted = load_calibrator(str(tmp_path / "weak.json"))
    assert fitted.value(0.97) == pytest.approx(0.66, abs=0.06)
    assert fitted.value(0.8) == pytest.approx(0.25, abs=0.07)
    found = calibrate_judged(str(path), "weak")
    assert found.fitted_on + found.reported_on == 2000
    assert 0.25 < found.reported_on / 2000 < 0.35
    assert found.ece_after < 0.06
    assert found.ece_before > 0.2


def test_what_says_nothing_of_the_model_is_left_out(tmp_path: Path) -> None:
    record, _ = next(told(1))
    path = tmp_path / "r.jsonl"
    from msgspec import structs

    from rheostat.telemetry import JsonlSink

    others = {
        "good": {}, "other": {"selected_model": "strong"}, "mixed": {"weights": {"weak": 0.5, "strong": 0.5}},
        "cached": {"cache": "hit"}, "unsure": {"outcomes": (Outcome("weak", Prediction("stop")),)}, "unjudged": {},
    }  # fmt: skip
    sink = JsonlSink(str(path))
    sink.write([structs.replace(record, id=name, **changes) for name, changes in others.items()])
    sink.write([Feedback(request_id=name, reward=1.0) for name in others if name != "unjudged"])
    sink.write([Feedback(request_id="good", label="stop")])  # of a conversation a label says nothing; the reward stays
    sink.close()
    found = judged_answers(path, "weak")
    assert found.confidence.tolist() == [record.outcomes[0].confidence]
    assert found.right.tolist() == [True]
    with pytest.raises(CalibrationError, match="`reward`"):
        calibrate_judged(str(path), "weak")
    with pytest.raises(CalibrationError, match="quantile"):
        calibrate_judged(str(path), "weak", "quantile")


def test_the_whole_way_over_http(tmp_path: Path) -> None:
    """Served, judged over HTTP, calibrated from the records, and served with the calibrator."""
    weak = Chats(lambda body: completion("weak", logprobs=[-0.05 if "sure" in str(body) else -0.5]))
    config = f"models: {{weak: {model(weak, 'confidence: mean_logprob MORE')}}}\nroutes: {{default: {{policy: weak}}}}\n"
    with gateway(tmp_path, config.replace(" MORE", "")) as handle:
        for number in range(60):
            sure = number % 3 > 0
            reply = ask(handle.url, hello(f"{'sure' if sure else 'unclear'} {number}"))
            right = number % 6 != 1 if sure else number % 6 == 3
            judge(handle.url, reply.headers["x-rheostat-request-id"], float(right))
    done = CliRunner().invoke(
        app,
        [
            "calibrate",
            str(tmp_path / "records.db"),
            "--model",
            "weak",
            "--method",
            "platt",
            "--out",
            str(tmp_path / "c.json"),
        ],
    )
    assert done.exit_code == 0, done.output
    fitted = load_calibrator(str(tmp_path / "c.json"))
    with gateway(tmp_path, config.replace(" MORE", ", calibration: c.json")) as handle:
        request_id = ask(handle.url, hello("sure")).headers["x-rheostat-request-id"]
        assert sure_of(tmp_path, request_id) == pytest.approx(fitted.value(math.exp(-0.05)))
    weak.close()


def judge(url: str, request_id: str, reward: float) -> None:
    body = json.dumps({"request_id": request_id, "reward": reward}).encode()
    request = urllib.request.Request(f"{url}/v1/feedback", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as reply:
        assert reply.status in (200, 202)
