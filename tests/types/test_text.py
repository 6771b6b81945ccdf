import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rheostat.types.text import normalise_text, well_formed


@pytest.mark.parametrize(
    "text",
    [
        "REFUND",
        "ＲＥＦＵＮＤ",
        "re\u200bfund",
        "Refund😀",
        "ｒｅｆｕｎｄ",
        "REFUNDİNG",
        "re\x00fund",
        "re\ufe0ffund",
        "re\u00adfund",
    ],
)
def test_one_word_in_several_spellings(text: str) -> None:
    assert "refund" in normalise_text(text)


def test_chinese_and_accents() -> None:
    assert "退款" in normalise_text("我要退款項")
    assert normalise_text(unicodedata.normalize("NFD", "Résumé")) == normalise_text("RÉSUMÉ") == "résumé"
    assert normalise_text("straße") == normalise_text("STRASSE")


def test_look_alikes_stay_apart() -> None:
    assert "refund" not in normalise_text("rеfund")  # Cyrillic е


def test_white_space_is_kept() -> None:
    assert normalise_text("A\n\tB") == "a\n\tb"


@given(st.text())
def test_twice_is_once(text: str) -> None:
    once = normalise_text(text)
    assert normalise_text(once) == once


@given(st.text(st.characters()))
def test_well_formed_text_can_be_encoded(text: str) -> None:
    fixed = well_formed(text)
    fixed.encode("utf-8")
    assert len(fixed) == len(text)


def test_surrogates_are_replaced_and_nothing_else() -> None:
    assert well_formed("a\ud800b😀") == "a\ufffdb😀"
    assert well_formed("plain") == "plain"
    assert normalise_text("A\ud800") == "a\ud800"
