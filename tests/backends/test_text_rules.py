from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rheostat.backends.lexicon import Lexicon
from rheostat.backends.text_rules import Cut, Fallback, Pattern, RulesModel
from rheostat.errors import ConfigError, ModelError
from rheostat.pool.backend import Backend, Reply
from rheostat.types import Prediction

RULES = RulesModel(
    patterns=(
        Pattern(label="order", regex=r"order\s+#?\d+", confidence=0.95),
        Pattern(label="slow", regex="(a+)+$", confidence=0.5),
    ),
    keywords={"refund": ("refund", "退款", "résumé"), "bug": ("crash", "error", "broken")},
    default=Fallback(label="other", confidence=0.1),
)


def opened(settings: RulesModel = RULES, base: str = "") -> Backend:
    backend = settings.open(base)
    assert isinstance(backend, Backend)
    return backend


def answer(text: object, settings: RulesModel = RULES, base: str = "") -> Prediction:
    (reply,) = opened(settings, base).predict([text])
    assert isinstance(reply, Prediction), reply
    return reply


@pytest.mark.parametrize(
    "text",
    [
        "REFUND",
        "ＲＥＦＵＮＤ",
        "re\u200bfund",
        "Refund😀",
        "我要退款！",
        "我要退款項",
        "re\u0301sume\u0301",
        "REFUNDİNG",
        {"text": "refund"},
    ],
)
def test_one_keyword_in_every_spelling(text: object) -> None:
    assert answer(text).label == "refund"


def test_order_of_rules_and_what_matched_is_told() -> None:
    assert answer("refund for ORDER #12") == Prediction("order", 0.95, None, {"rule": "pattern", "regex": r"order\s+#?\d+"})
    split = answer("error and crash, refund")
    assert split.label == "bug"
    assert split.confidence == pytest.approx(0.9 * 2 / 3)
    assert split.output == {"rule": "keywords", "words": ["crash", "error"]}
    assert answer("error, refund").label == "refund"  # a tie goes to the label written first
    assert answer("") == Prediction("other", 0.1, None, {"rule": "default"})


def test_a_slow_pattern_ends_at_once() -> None:
    assert answer("a" * 20_000 + "!").label == "other"


def test_without_normalisation_only_the_exact_spelling() -> None:
    plain = msgspec.structs.replace(RULES, normalise=False)
    assert answer("refund", plain).label == "refund"
    assert answer("Refund", plain).label == "other"
    assert answer("a\ud800 refund", plain).label == "refund"


def test_whole_words() -> None:
    words = RulesModel(keywords={"meat": ("ham", "肉"), "cpp": ("c++",)}, whole_words=True, default=Fallback(label="-"))
    assert answer("shame", words).label == "-"
    assert answer("Ham, please", words).label == "meat"
    assert answer("我要ham肉", words).label == "meat"
    assert answer("买肉吃", words).label == "meat"
    assert answer("I write C++.", words).label == "cpp"


def test_rows_without_text_or_match_fail_alone() -> None:
    bare = RulesModel(keywords={"a": ("x",)})
    good, none, number = opened(bare).predict(["x", "nothing", 5])
    assert isinstance(good, Prediction)
    kinds = [reply.kind for reply in (none, number) if isinstance(reply, ModelError)]
    assert kinds == ["bad_output", "input_refused"]


LEXICON = "# a comment\n\ngood\t1.9\tmore\nbad\t-2.5\n:)\t2.0\n喜欢\t2\n糟糕\t-3\n#1\t1.0\n"
CUTS = (Cut(label="negative", below=-0.05), Cut(label="neutral", below=0.05), Cut(label="positive"))


@pytest.fixture
def lexicon(tmp_path: Path) -> str:
    (tmp_path / "words.tsv").write_text(LEXICON, encoding="utf-8")
    return str(tmp_path)


def test_a_lexicon_scores_cuts_and_grows_with_the_score(lexicon: str) -> None:
    settings = RulesModel(lexicon="words.tsv", cuts=CUTS, default=Fallback(label="neutral"))
    cases = {
        "A GOOD film": "positive",
        "bad.": "negative",
        "not good": "negative",
        "isn't bad": "positive",
        "good, bad good": "positive",
        ":)": "positive",
        "我喜欢": "positive",
        "我不喜欢": "negative",
        "太糟糕了": "negative",
        "table": "neutral",
        "we're #1": "positive",
    }
    assert {text: answer(text, settings, lexicon).label for text in cases} == cases
    weak, strong = answer("good", settings, lexicon), answer("good good good", settings, lexicon)
    assert 1 / 3 < (weak.confidence or 0) < (strong.confidence or 0) < 1


@given(st.text(), st.dictionaries(st.text(min_size=1).filter(str.strip), st.floats(-5, 5), min_size=1, max_size=5))
def test_lexicon_scores_lie_in_their_range(text: str, terms: dict[str, float]) -> None:
    score = Lexicon(terms).score(text + next(iter(terms)))
    assert score is None or -1.0 < score < 1.0


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        (RulesModel(), "no rule"),
        (RulesModel(patterns=(Pattern(label="x", regex=r"(a)\1"),)), r"patterns\[0\].regex.*refused: invalid escape"),
        (RulesModel(patterns=(Pattern(label="x", regex="(a"),)), "missing"),
        (RulesModel(patterns=(Pattern(label="x", regex="a", confidence=1.5),)), r"patterns\[0\].confidence"),
        (RulesModel(keywords={"x": ("", "y")}), "keywords.x"),
        (RulesModel(keywords={"x": ("\u200b",)}), "keywords.x"),
        (RulesModel(default=Fallback(label="x", confidence=2)), "default.confidence"),
        (RulesModel(lexicon="words.tsv"), "need each other"),
        (RulesModel(lexicon="words.tsv", cuts=(Cut(label="a", below=0.5), Cut(label="b", below=0.1))), "rising"),
        (RulesModel(lexicon="absent.tsv", cuts=CUTS), "cannot be read"),
        (RulesModel(lexicon="broken.tsv", cuts=CUTS), "line 2.*term<TAB>number"),
    ],
)
def test_rules_that_cannot_work_are_refused(lexicon: str, settings: RulesModel, word: str) -> None:
    Path(lexicon, "broken.tsv").write_text("good\t1\nbad 2\n")
    with pytest.raises(ConfigError, match=f"(?s){word}"):
        settings.open(lexicon)


@given(st.text(st.characters()))
def test_any_text_gets_an_answer(text: str) -> None:
    (reply,) = _OPEN.predict([text])
    assert isinstance(reply, Prediction)
    assert reply.label in ("order", "slow", "refund", "bug", "other")


_OPEN = RULES.open("")


def test_all_labels_are_declared() -> None:
    assert opened().labels == ("order", "slow", "refund", "bug", "other")
    reply: Reply = opened().predict(["x"])[0]
    assert isinstance(reply, Prediction)
