import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rheostat.errors import ConfigError
from rheostat.signals.text import FEATURES, LONGEST, TextFeatures
from rheostat.types import Request

ALL = TextFeatures(FEATURES)


def of(text: str, *names: str) -> dict[str, float]:
    return TextFeatures(names).measure(text)


def test_only_the_named_features_in_their_order() -> None:
    features = TextFeatures(["words", "length"])
    assert features.names == ("words", "length")
    assert list(features.score(Request(id="1", data="a b", text="a b")).items()) == [("words", 2.0), ("length", 3.0)]


def test_english() -> None:
    text = 'Hello WORLD, it isn\'t 3.14! Is it? See www.a.org and https://www.b.org. He said "no."'
    assert of(text, "words", "sentences", "questions", "exclamations", "urls", "clauses") == {
        "words": 20.0, "sentences": 4.0, "questions": 1.0, "exclamations": 1.0, "urls": 2.0, "clauses": 2.0
    }  # fmt: skip
    assert of("aa bbb", "mean_word_length", "longest_word", "mean_sentence_length") == {
        "mean_word_length": 2.5, "longest_word": 3.0, "mean_sentence_length": 2.0
    }  # fmt: skip
    assert of("Ab1! ", "uppercase_share", "digits_share", "punctuation_share", "whitespace_share") == dict.fromkeys(
        ("uppercase_share", "digits_share", "punctuation_share", "whitespace_share"), 0.2
    )
    assert of("a b A", "type_token_ratio")["type_token_ratio"] == pytest.approx(2 / 3)
    assert of("nooooo!", "repeated_share")["repeated_share"] == pytest.approx(5 / 7)
    assert of("a\nb\n", "newlines") == {"newlines": 2.0}


def test_chinese() -> None:
    text = "我要退款，可以吗？谢谢！"
    assert of(text, "words", "sentences", "questions", "exclamations", "clauses", "longest_word") == {
        "words": 9.0, "sentences": 2.0, "questions": 1.0, "exclamations": 1.0, "clauses": 1.0, "longest_word": 1.0
    }  # fmt: skip
    assert of(text, "cjk_share", "non_ascii_share") == {"cjk_share": 0.75, "non_ascii_share": 1.0}
    assert of("我爱ok fine", "words", "mixed_script") == {"words": 4.0, "mixed_script": 1.0}
    assert of("我爱你", "mixed_script") == {"mixed_script": 0.0}
    assert of("naïve Ünïted", "words", "uppercase_share") == {"words": 2.0, "uppercase_share": pytest.approx(1 / 12)}


def test_function_words_in_both_languages() -> None:
    names = ("conjunctions", "subordinators", "negations", "question_words", "prepositions")
    english = of("Why don't you, or anyone who asks, say that it is not of use?", *names)
    assert english == {
        "conjunctions": 1.0, "subordinators": 2.0, "negations": 2.0, "question_words": 2.0, "prepositions": 1.0
    }  # fmt: skip
    chinese = of("因为快递没到，为什么不能退款？但是关于运费呢？", *names)
    assert chinese == {
        "conjunctions": 1.0, "subordinators": 1.0, "negations": 2.0, "question_words": 2.0, "prepositions": 1.0
    }  # fmt: skip
    assert set(of("非常特别，别人几乎和谐", *names).values()) == {0.0}


def test_rare_words_and_their_frequency_in_both_languages() -> None:
    plain = of("the cat sat on the mat", "rare_words", "mean_frequency")
    assert plain["rare_words"] == 0.0
    assert plain["mean_frequency"] > 5.0
    assert of("perspicacious hermeneutics", "rare_words")["rare_words"] == 1.0
    assert of("我们在这里", "rare_words")["rare_words"] == 0.0
    assert of("魑魅魍魉", "rare_words")["rare_words"] >= 0.75
    assert of("42 7.5", "rare_words", "mean_frequency") == {"rare_words": 0.0, "mean_frequency": 0.0}


def test_a_nested_sentence_is_deeper_than_a_flat_one() -> None:
    flat = of("The man left. The dog slept.", "syntax_depth")["syntax_depth"]
    nested = of("The man who said that the dog of the woman in the house had slept left.", "syntax_depth")["syntax_depth"]
    assert nested > flat + 2.0
    assert of("因为他说狗睡了，所以我走了。", "syntax_depth")["syntax_depth"] == 0.0


def test_code_looks_more_like_code_than_prose_does() -> None:
    code = of("def f(x):\n    return {x: [y == 1]};", "code_likeness")["code_likeness"]
    prose = of("I returned the class photo, see page 3 (the last).", "code_likeness")["code_likeness"]
    assert code > 0.6
    assert prose < 0.4


def test_only_the_beginning_of_a_long_text_is_read() -> None:
    found = of("a " * LONGEST, "length", "words")
    assert found == {"length": 2.0 * LONGEST, "words": LONGEST / 2}


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"'wrods'; did you mean 'words'"):
        TextFeatures(["wrods"])
    with pytest.raises(ConfigError, match="known are length"):
        TextFeatures(["zzz"])


@pytest.mark.parametrize("text", ["", " ", "\x00", "\ud800", "\n" * 50, ".", "!" * 30_000, "a" * 30_000, "😀" * 3, "\u202e"])
def test_odd_text(text: str) -> None:
    test_every_feature_is_finite_and_in_its_range.hypothesis.inner_test(text)  # type: ignore[attr-defined]


@given(st.text(st.characters()) | st.text("aB1 .!?\"'中。\n{=;"))
def test_every_feature_is_finite_and_in_its_range(text: str) -> None:
    found = ALL.measure(text)
    assert list(found) == list(FEATURES)
    for name, value in found.items():
        assert isinstance(value, float), name
        assert math.isfinite(value), name
        assert value >= 0.0, name
        if "0 to 1" in FEATURES[name] or name == "mixed_script":
            assert value <= 1.0, name
    assert found["words"] <= max(1, len(text))
    assert bool(found["sentences"]) == bool(text.strip())
