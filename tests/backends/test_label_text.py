import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rheostat.backends.label_text import match_label, scores_from_logprobs

LABELS = ("positive", "negative", "bug", "bug report", "正面", "c++")


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("positive", "positive"),
        (" Positive.\n\nBecause", "positive"),
        ('"NEGATIVE"', "negative"),
        ("**bug**", "bug"),
        ("bug report", "bug report"),
        ("bug: it crashes", "bug"),
        ("正面。", "正面"),
        ("正面评价", "正面"),
        ("C++", "c++"),
        ("positively", None),
        ("bugs", None),
        ("I say positive", None),
        ("", None),
        ("...", None),
    ],
)
def test_match_label(text: str, label: str | None) -> None:
    assert match_label(text, LABELS) == label


def position(chosen: str, /, **alternatives: float) -> dict[str, object]:
    listed = [{"token": token.replace("_", " "), "logprob": math.log(chance)} for token, chance in alternatives.items()]
    own = next(each for each in listed if each["token"] == chosen)
    return {**own, "top_logprobs": listed}


def test_labels_are_told_apart_by_their_first_token() -> None:
    tokens = [position("pos", pos=0.6, neg=0.2, Neg=0.1, other=0.1), position("itive", itive=0.99)]
    assert scores_from_logprobs(tokens, ("positive", "negative")) == pytest.approx({"positive": 2 / 3, "negative": 1 / 3})


def test_one_capital_letter_is_a_word_and_no_beginning_of_a_small_label() -> None:
    labels = ("positive", "irrelevant")
    tokens = [position("positive", positive=0.3, I=0.6, irre=0.1)]
    assert scores_from_logprobs(tokens, labels) == pytest.approx({"positive": 0.75, "irrelevant": 0.25})
    capitals = [position("Positive", Positive=0.3, I=0.6)]
    assert scores_from_logprobs(capitals, labels) == pytest.approx({"positive": 1 / 3, "irrelevant": 2 / 3})
    named = [position("a", a=0.3, B=0.6)]
    assert scores_from_logprobs(named, ("a", "b")) == pytest.approx({"a": 1 / 3, "b": 2 / 3})


def test_a_common_beginning_is_walked() -> None:
    labels = ("card lost", "card stolen", "other")
    tokens = [position("card", card=0.8, other=0.2), position(" lost", _lost=0.75, _stolen=0.25)]
    expected = {"card lost": 0.6, "card stolen": 0.2, "other": 0.2}
    assert scores_from_logprobs(tokens, labels) == pytest.approx(expected)


def test_a_label_that_begins_another_ends_with_the_answer() -> None:
    labels = ("bug", "bug report")
    assert scores_from_logprobs([position("bug", bug=0.9)], labels) == pytest.approx({"bug": 1.0, "bug report": 0.0})
    tokens = [position("bug", bug=1.0), position(".", **{".": 0.7, "_report": 0.3})]
    assert scores_from_logprobs(tokens, labels) == pytest.approx({"bug": 0.7, "bug report": 0.3})


def test_an_alternative_not_taken_that_fits_several_is_shared() -> None:
    labels = ("card lost", "card stolen", "other")
    tokens = [position("other", other=0.6, card=0.4)]
    expected = {"card lost": 0.2, "card stolen": 0.2, "other": 0.6}
    assert scores_from_logprobs(tokens, labels) == pytest.approx(expected)


def test_white_space_and_quotes_first() -> None:
    tokens = [position('"', **{'"': 0.9, "negative": 0.1}), position("positive", positive=0.5, negative=0.5)]
    assert scores_from_logprobs(tokens, ("positive", "negative")) == pytest.approx({"positive": 0.45, "negative": 0.55})


def test_half_characters_by_their_bytes() -> None:
    good, bad = "正".encode(), "负".encode()
    first = {"token": "?", "bytes": list(good[:2]), "logprob": math.log(0.8)}
    second = {"token": "?", "bytes": list(bad[:2]), "logprob": math.log(0.2)}
    scores = scores_from_logprobs([{**first, "top_logprobs": [first, second]}], ("正面", "负面"))
    assert scores == pytest.approx({"正面": 0.8, "负面": 0.2})


@pytest.mark.parametrize(
    "tokens",
    [
        [],
        [None],
        [{}],
        [{"token": "maybe", "logprob": -1}],
        [{"token": "positive", "logprob": "x"}],
        [{"token": "positive", "logprob": math.nan}],
        [{"token": "positive", "logprob": None, "top_logprobs": [3]}],
    ],
)
def test_chances_that_say_nothing_give_no_scores(tokens: list[object]) -> None:
    assert scores_from_logprobs(tokens, ("positive", "negative")) is None


_entry = st.fixed_dictionaries(
    {"token": st.sampled_from(["bug", " bug", "b", "ug", " report", ".", "pos", "itive", "\n", "正", "", "x"])},
    optional={"logprob": st.floats(-30, 1) | st.none()},
)


@given(st.lists(st.tuples(_entry, st.lists(_entry, max_size=4)), max_size=5))
def test_any_tokens_give_a_distribution_or_none(raw: list[tuple[dict[str, object], list[object]]]) -> None:
    scores = scores_from_logprobs([{**own, "top_logprobs": others} for own, others in raw], LABELS)
    if scores is not None:
        assert set(scores) == set(LABELS)
        assert math.fsum(scores.values()) == pytest.approx(1.0)
        assert min(scores.values()) >= 0.0
