"""Learned files that read answers: their numbers, the scorer, and what it keeps for a short time."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import Ridge

from rheostat.errors import ConfigError
from rheostat.lab.learned_file import from_sklearn, write_learned
from rheostat.signals import AnswerLine, AnswersScorerSettings, LearnedCard, Scorer, ScorerError
from rheostat.signals.answer_line import Past
from rheostat.signals.answers import PAST_KEY
from rheostat.signals.base import AnswerScorer
from rheostat.signals.kept_weights import Memory
from rheostat.signals.learned import LearnedScorerSettings
from rheostat.types import Failure, Outcome, Prediction, Request

PAST = {"user": Past(models=("fast", "large"), keys={"7": (0.2, 0.9)}, otherwise=(0.5, 0.6))}


def said(model: str, **scores: float) -> Outcome:
    return Outcome(model, Prediction.from_scores(scores))


def failed(model: str) -> Outcome:
    return Outcome(model, failure=Failure("timeout"))


def request(received: float = 0.0, session: str | None = None, **meta: Any) -> Request:
    return Request(id="1", data="abc", text="abc", meta=meta, session=session, received=received)


BOTH = {"fast": said("fast", yes=0.8, no=0.2), "large": said("large", yes=0.4, no=0.6)}


def test_numbers_by_hand() -> None:
    names = (
        "length", "confidence(fast)", "margin(fast)", "entropy(large)", "odds(fast=yes)", "gap(fast,large)",
        "gap(fast,large=yes)", "distance(fast,large)", "agree(fast,large)", "past(large;user)", "past(fast;meta.user)",
    )  # fmt: skip
    line = AnswerLine(names, PAST)
    assert line.needs == ("fast", "large")
    odds = math.log(4.0)
    even = -(0.4 * math.log(0.4) + 0.6 * math.log(0.6)) / math.log(2)
    expected = [3.0, 0.8, 0.6, even, odds, 0.2, odds - math.log(0.4 / 0.6), 0.4, 0.0, 0.9, 0.2]
    assert line.read(request(user=7), BOTH) == pytest.approx(expected)
    assert line.read(request(), BOTH)[-2:] == [0.6, 0.5]


@given(st.sampled_from(["fast", "large"]), st.booleans())
def test_what_a_failed_model_would_have_said_is_missing_and_nothing_else(lost: str, gone: bool) -> None:
    names = ("confidence(fast)", "confidence(large)", "gap(fast,large)", "distance(fast,large)", "agree(fast,large)")
    given_ = {model: outcome for model, outcome in BOTH.items() if model != lost}
    read = AnswerLine(names).read(request(), given_ if gone else {**given_, lost: failed(lost)})
    assert [math.isnan(value) for value in read] == [lost == "fast", lost == "large", True, True, True]


def test_an_answer_without_scores_has_its_confidence_only() -> None:
    bare = {"fast": Outcome("fast", Prediction("yes", 0.7)), "large": BOTH["large"]}
    read = AnswerLine(("confidence(fast)", "entropy(fast)", "odds(fast=yes)", "agree(fast,large)")).read(request(), bare)
    assert read[0] == 0.7
    assert math.isnan(read[1])
    assert math.isnan(read[2])
    assert read[3] == 0.0


@pytest.mark.parametrize(
    "name", ["gap(fast)", "odds(fast)", "confidence(fast,large)", "margin(fast=yes)", "past(fast)", "agree(,a)"]
)
def test_a_name_that_is_not_whole_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is no number of answers"):
        AnswerLine((name,))
    with pytest.raises(ValueError, match="no past of fast by"):
        AnswerLine(("past(fast;page)",), PAST)


def write(folder: Path, features: tuple[str, ...], past: dict[str, Past] | None = None) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, len(features)))
    model = Ridge().fit(x, rng.normal(size=(20, 2)))
    made = from_sklearn(model, len(features))
    card = LearnedCard(meaning="weights", features=features, outputs=("fast", "large"))
    write_learned(made, card, folder / "w.onnx", {PAST_KEY: msgspec.json.encode(past or {}).decode()})
    return np.asarray(model.coef_)


SETTINGS = AnswersScorerSettings(path="w.onnx", outputs=("fast", "large"))


def test_the_scorer_waits_for_the_models_its_card_names(tmp_path: Path) -> None:
    write(tmp_path, ("confidence(fast)", "length"))
    scorer = SETTINGS.open("w", str(tmp_path))
    assert isinstance(scorer, AnswerScorer)
    assert (scorer.names, scorer.needs) == (("w.fast", "w.large"), ("fast",))
    found = scorer.score(request(), {}, BOTH)
    assert set(found) == {"w.fast", "w.large"}
    with pytest.raises(ScorerError, match="expected finite numbers"):
        scorer.score(request(), {}, {"fast": failed("fast")})  # this file cannot fill what is missing
    with pytest.raises(ConfigError, match="scorer: answers"):
        LearnedScorerSettings(path="w.onnx", outputs=("fast", "large")).open("w", str(tmp_path))


def test_a_file_of_requests_and_earlier_rows_waits_for_nobody(tmp_path: Path) -> None:
    coef = write(tmp_path, ("length", "past(large;user)"), PAST)
    scorer = SETTINGS.open("w", str(tmp_path))
    assert isinstance(scorer, Scorer)
    assert not isinstance(scorer, AnswerScorer)
    seen, fresh = scorer.score(request(user=7)), scorer.score(request(user=8))
    assert seen["w.fast"] - fresh["w.fast"] == pytest.approx(coef[0, 1] * (0.9 - 0.6), abs=1e-5)


def test_a_broken_past_and_an_impossible_cache_are_refused(tmp_path: Path) -> None:
    write(tmp_path, ("past(large;user)",))
    with pytest.raises(ConfigError, match=r"w\.onnx cannot be read.*no past of large"):
        SETTINGS.open("w", str(tmp_path))
    for change, field in (({"cache_s": -1.0}, "cache_s"), ({"cache_keys": 0}, "cache_keys")):
        with pytest.raises(ConfigError, match=field):
            msgspec.structs.replace(SETTINGS, **change).open("w", str(tmp_path))


def test_signals_are_kept_for_a_session_and_a_short_time(tmp_path: Path) -> None:
    write(tmp_path, ("confidence(fast)",))
    scorer: Any = msgspec.structs.replace(SETTINGS, cache_s=5.0, cache_keys=2).open("w", str(tmp_path))
    assert isinstance(scorer, AnswerScorer)
    unsure = {"fast": said("fast", yes=0.5, no=0.5)}
    first = scorer.score(request(10.0, "a"), {}, BOTH)
    assert scorer.score(request(15.0, "a"), {}, unsure) == first
    fresh = scorer.score(request(15.1, "a"), {}, unsure)
    assert fresh != first
    assert (scorer.memory.hits, scorer.memory.misses) == (1, 2)
    for session in "bcd":
        scorer.score(request(15.0, session), {}, BOTH)
    assert len(scorer.memory) == 2


def test_replay_failures_and_requests_without_the_key_go_past_the_memory(tmp_path: Path) -> None:
    write(tmp_path, ("confidence(fast)",))
    scorer: Any = msgspec.structs.replace(SETTINGS, cache_s=5.0).open("w", str(tmp_path))
    scorer.score(request(0.0, "a"), {}, BOTH)
    scorer.score(request(1.0, None), {}, BOTH)
    with pytest.raises(ScorerError):
        scorer.score(request(1.0, "a"), {}, {"fast": failed("fast")})
    assert (len(scorer.memory), scorer.memory.hits, scorer.memory.misses) == (0, 0, 0)


def test_signals_of_requests_are_kept_too(tmp_path: Path) -> None:
    write(tmp_path, ("length",))
    scorer: Any = msgspec.structs.replace(SETTINGS, cache_s=5.0, key="user").open("w", str(tmp_path))
    assert isinstance(scorer, Scorer)
    assert scorer.score(request(1.0, user=3)) is scorer.score(request(2.0, user=3))
    assert scorer.memory.hits == 1


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.floats(0.0, 3.0)), max_size=40))
def test_a_memory_never_gives_what_is_old_and_never_grows(events: list[tuple[str, float]]) -> None:
    memory, now, made = Memory(2.0, 2, "session"), 1.0, {}
    for key, step in events:
        now += step
        found = memory.get(key, now)
        if found is None:
            made[key] = now
            memory.put(key, now, {"at": now})
        else:
            assert found["at"] == made[key] >= now - 2.0
        assert len(memory) <= 2
    assert memory.hits + memory.misses == len(events)
